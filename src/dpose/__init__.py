"""dpose: differentially private human vision in Python.

    plan = dpose.TrainingPlan(method="dp-sgd", epsilon=0.8, delta=4e-5, epochs=25, expected_batch_size=1024)
    run = dpose.train(task, model, private=units, plan=plan, out="runs/mpii")
    print(run.statement.paragraph())

The names below are the public ones; everything else may move. They are imported when first used, so that the command
line answers at once.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from dpose.errors import DposeError as DposeError
    from dpose.pose.data import open_data as open_data
    from dpose.pose.folder import load_model as load_model
    from dpose.pose.metrics import PCKh as PCKh
    from dpose.pose.model import PoseConfig as PoseConfig
    from dpose.pose.model import PoseModel as PoseModel
    from dpose.pose.model import apply_strategy as apply_strategy
    from dpose.pose.model import fold_batchnorm as fold_batchnorm
    from dpose.pose.predict import Pose as Pose
    from dpose.pose.predict import predict_image as predict_image
    from dpose.pose.task import PoseTask as PoseTask
    from dpose.privacy.statement import PrivacyStatement as PrivacyStatement
    from dpose.release.api import pixelize as pixelize
    from dpose.release.api import release_video as release_video
    from dpose.runs.verify import verify_run as verify_run
    from dpose.training.methods import Method as Method
    from dpose.training.methods import register_method as register_method
    from dpose.training.optim import OptimizerConfig as OptimizerConfig
    from dpose.training.options import RunOptions as RunOptions
    from dpose.training.plan import TrainingPlan as TrainingPlan
    from dpose.training.trainer import train as train
    from dpose.units import View as View

_HOMES = {
    "DposeError": "errors",  # the one error a user sees
    "Method": "training.methods",  # what is read, how a step's gradient is made of it, what that protects
    "OptimizerConfig": "training.optim",  # any torch optimizer and its schedule
    "PCKh": "pose.metrics",  # percentage of correct keypoints, update and compute
    "Pose": "pose.predict",  # one person's joints in a picture
    "PoseConfig": "pose.model",  # preset, input size, norm
    "PoseModel": "pose.model",  # TinyViT with a coordinate classification head
    "PoseTask": "pose.task",  # what the engine knows of poses
    "PrivacyStatement": "privacy.statement",  # what is guaranteed, in words and JSON
    "RunOptions": "training.options",  # where a run starts from, what it scores, threads and memory
    "TrainingPlan": "training.plan",  # method, sampling, clipping, noise and event, bound together
    "View": "units",  # one look at a unit: a picture and its labels
    "apply_strategy": "pose.model",  # which parameters train
    "fold_batchnorm": "pose.model",  # BatchNorm into its convolution, exactly
    "load_model": "pose.folder",  # a model from its folder
    "open_data": "pose.data",  # units from NAME[:ROOT][:SPLIT]
    "pixelize": "release.api",  # a private picture or clip, as blocks of noisy averages
    "predict_image": "pose.predict",  # the joints of a person in a picture
    "register_method": "training.methods",  # enter a method of one's own
    "release_video": "release.api",  # a private video, by a projection with noise
    "train": "training.trainer",  # train a model as a plan says
    "verify_run": "runs.verify",  # recompute epsilon from the ledger
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dpose' has no attribute {name!r}")
    return getattr(import_module(f"dpose.{_HOMES[name]}"), name)
