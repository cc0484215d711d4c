"""dpose: differentially private human vision in Python.

    plan = dpose.TrainingPlan(method="dp-sgd", epsilon=0.8, delta=4e-5, epochs=25, expected_batch_size=1024)
    run = dpose.train(task, model, private=units, plan=plan, out="runs/mpii")
    print(run.statement.paragraph())

The names in `__init__.pyi` are the public ones; everything else may move. They are imported when first used, so
that the command line answers at once. Importing dpose sets nothing of the process: what commands and runs need they set
when they begin (`dpose.interpreter`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
