"""The public names, for type checkers; `__init__.py` imports each on first use.

Written by tools/stub.py: do not edit.
"""

from ornstein import theory as theory
from ornstein._version import __version__ as __version__
from ornstein.baselines.bbvi import bbvi as bbvi
from ornstein.baselines.gaussian_vi import gaussian_vi as gaussian_vi
from ornstein.baselines.hmc import hmc as hmc
from ornstein.baselines.laplace import laplace as laplace
from ornstein.baselines.low_rank import low_rank as low_rank
from ornstein.baselines.nuts import nuts as nuts
from ornstein.compute.cache import cache_compilations as cache_compilations
from ornstein.curvature.check_gradients import check_gradients as check_gradients
from ornstein.curvature.curvature import Curvature as Curvature
from ornstein.curvature.measure import measure as measure
from ornstein.dynamics.dynamics import Dynamics as Dynamics
from ornstein.dynamics.minibatches import Minibatches as Minibatches
from ornstein.dynamics.prediction import Prediction as Prediction
from ornstein.entrances import fit as fit
from ornstein.entrances import glm as glm
from ornstein.entrances import glmm as glmm
from ornstein.entrances import regress as regress
from ornstein.entrances import resume as resume
from ornstein.entrances import sample as sample
from ornstein.errors import ApproximationWarning as ApproximationWarning
from ornstein.errors import BudgetWarning as BudgetWarning
from ornstein.errors import CheckpointWarning as CheckpointWarning
from ornstein.errors import ClusterError as ClusterError
from ornstein.errors import ConvergenceWarning as ConvergenceWarning
from ornstein.errors import CurvatureError as CurvatureError
from ornstein.errors import DivergenceError as DivergenceError
from ornstein.errors import FileError as FileError
from ornstein.errors import HyperparameterWarning as HyperparameterWarning
from ornstein.errors import InputError as InputError
from ornstein.errors import OrnsteinError as OrnsteinError
from ornstein.errors import OrnsteinWarning as OrnsteinWarning
from ornstein.errors import PredictionWarning as PredictionWarning
from ornstein.errors import StabilityError as StabilityError
from ornstein.errors import StationarityWarning as StationarityWarning
from ornstein.errors import TrustWarning as TrustWarning
from ornstein.errors import WayError as WayError
from ornstein.errors import WindowWarning as WindowWarning
from ornstein.hyper.em import em as em
from ornstein.hyper.fit import EMFit as EMFit
from ornstein.interfaces.numpyro.model import from_numpyro as from_numpyro
from ornstein.interfaces.sklearn.estimators import BayesianClassifier as BayesianClassifier
from ornstein.interfaces.sklearn.estimators import (
    BayesianPoissonRegressor as BayesianPoissonRegressor,
)
from ornstein.interfaces.sklearn.estimators import BayesianRegressor as BayesianRegressor
from ornstein.model import families as families
from ornstein.model import priors as priors
from ornstein.model.mixed.priors import MixedPriors as MixedPriors
from ornstein.model.model import Model as Model
from ornstein.model.on_disk import open_table as open_table
from ornstein.model.regression import GLM as GLM
from ornstein.posterior.comparison import compare as compare
from ornstein.posterior.posterior import Posterior as Posterior
from ornstein.posterior.storage import load as load
from ornstein.samplers.constant_sgd import ConstantSGD as ConstantSGD
from ornstein.samplers.iasg import IASG as IASG
from ornstein.samplers.sgfs import SGFS as SGFS
from ornstein.samplers.sghmc import SGHMC as SGHMC
from ornstein.samplers.sgld import SGLD as SGLD
from ornstein.samplers.sgld import robbins_monro as robbins_monro
from ornstein.samplers.sgnht import SGNHT as SGNHT
from ornstein.sampling.averaging import Average as Average
from ornstein.sampling.averaging import average as average
from ornstein.theory import Gaussian as Gaussian
from ornstein.theory import kl as kl
from ornstein.verdict.verdict import Verdict as Verdict
from ornstein.ways.plan import Plan as Plan
from ornstein.ways.plan import plan as plan
