"""The public names of dpose and where each is defined: read by `lazy_loader` and by type checkers."""

from .errors import DposeError as DposeError  # the one error a user sees
from .pose.data import open_data as open_data  # units from NAME[:ROOT][:SPLIT]
from .pose.export import export_onnx as export_onnx  # the model as ONNX, checked against torch
from .pose.folder import load_model as load_model  # a model from its folder
from .pose.metrics import PCKh as PCKh  # percentage of correct keypoints, update and compute
from .pose.model import PoseConfig as PoseConfig  # preset, input size, norm
from .pose.model import PoseModel as PoseModel  # TinyViT with a coordinate classification head
from .pose.model import apply_strategy as apply_strategy  # which parameters train
from .pose.model import fold_batchnorm as fold_batchnorm  # BatchNorm into its convolution, exactly
from .pose.predict import Pose as Pose  # one person's joints in a picture
from .pose.predict import predict_image as predict_image  # the joints of a person in a picture
from .pose.task import PoseTask as PoseTask  # what the engine knows of poses
from .privacy.neighbours import Neighbours as Neighbours  # what may differ between two data sets
from .privacy.sampling import poisson_batch as poisson_batch  # every unit by itself with probability q
from .privacy.statement import PrivacyStatement as PrivacyStatement  # what is guaranteed, in words and JSON
from .release.api import pixelize as pixelize  # a private picture or clip, as blocks of noisy averages
from .release.api import release_video as release_video  # a private video, by a projection with noise
from .release.config import Pixelization as Pixelization  # settings of blocks of noisy averages
from .release.config import Projection as Projection  # settings of a noisy projection
from .release.operators import register_operator as register_operator  # enter a release operator
from .release.verify import verify_release as verify_release  # recompute a released file's epsilon
from .runs.verify import verify_run as verify_run  # recompute epsilon from the ledger
from .training.gradients import clipped_sum as clipped_sum  # per-unit gradients, clipped and summed in integers
from .training.methods import Method as Method  # how a step's gradient is made and what that protects
from .training.methods import register_method as register_method  # enter a method of one's own
from .training.optim import OptimizerConfig as OptimizerConfig  # any torch optimizer and its schedule
from .training.options import RunOptions as RunOptions  # first weights, scores, threads and memory
from .training.plan import TrainingPlan as TrainingPlan  # method, sampling, clipping, noise and event
from .training.plan import calibrate as calibrate  # the event that a budget pays for
from .training.run import Run as Run  # a run that has ended: folder, statement, model
from .training.step import add_noise as add_noise  # Gaussian noise on a clipped sum, exactly rounded
from .training.trainer import train as train  # train a model as a plan says
from .units import Task as Task  # a model, a loss per view, a way to stack views, a metric
from .units import UnitDataset as UnitDataset  # what is protected as a whole, by number
from .units import View as View  # one look at a unit: a picture and its labels
