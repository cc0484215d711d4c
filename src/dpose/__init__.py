"""dpose: differentially private human vision in Python.

    plan = dpose.TrainingPlan(method="dp-sgd", epsilon=0.8, delta=4e-5, epochs=25, expected_batch_size=1024)
    run = dpose.train(task, model, private=units, plan=plan, out="runs/mpii")
    print(run.statement.paragraph())

The names in `__init__.pyi` are the public ones; everything else may move. They are imported when first used, so
that the command line answers at once.
"""

import os

import lazy_loader

# torch's OpenMP threads wait for each other by spinning. Where anything else wants a core (a second run, a test, a
# browser) that can cost ten times the speed; sleeping at once costs a third of it on an idle machine. So they spin
# briefly, then sleep (docs/lab/results.md, "Waiting threads"). Must precede torch's import; a policy that is set stays.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")

# MKL may take other instructions for the first rows of a product, depending on where in memory its numbers begin; on an
# AMD processor the bits of a matrix times a vector then change from run to run, and a run that was stopped cannot take
# a step again as it was. In this mode they do not, at no cost that could be measured (docs/performance.md, "Bits"). And
# cuBLAS is deterministic only with a workspace of its own. Both must be said before either is first used.
os.environ.setdefault("MKL_CBWR", "AUTO")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
