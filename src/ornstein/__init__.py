"""Bayesian posteriors at the price of SGD: stochastic gradients as a sampler, tuned by theory and checked against it.

The flow: `Model` → `measure` → a sampler's `tune` → `sample` → `Posterior.check`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "BayesianClassifier": "interfaces.estimators",
    "BayesianPoissonRegressor": "interfaces.estimators",
    "BayesianRegressor": "interfaces.estimators",
    "from_numpyro": "interfaces.numpyro",
    "Average": "averaging",
    "IASG": "samplers.iasg",
    "SGFS": "samplers.sgfs",
    "SGHMC": "samplers.sghmc",
    "SGLD": "samplers.sgld",
    "SGNHT": "samplers.sgnht",
    "average": "averaging",
    "robbins_monro": "samplers.sgld",
    "WindowWarning": "errors",
    "ConstantSGD": "samplers.constant_sgd",
    "Curvature": "curvature",
    "Dynamics": "dynamics",
    "EMFit": "hyper.fit",
    "GLM": "glm",
    "Gaussian": "theory",
    "Model": "model",
    "Posterior": "posterior",
    "Prediction": "prediction",
    "Verdict": "diagnostics.verdict",
    "check_gradients": "check_gradients",
    "em": "hyper.em",
    "bbvi": "baselines.bbvi",
    "cache_compilations": "compilation_cache",
    "compare": "compare",
    "laplace": "baselines.laplace",
    "low_rank": "baselines.low_rank",
    "nuts": "baselines.nuts",
    "glm": "glm",
    "kl": "theory",
    "load": "storage",
    "measure": "curvature",
    "open_table": "streaming",
    "resume": "checkpoint",
    "sample": "sample",
    "ApproximationWarning": "errors",
    "BudgetWarning": "errors",
    "CheckpointWarning": "errors",
    "ClusterError": "errors",
    "ConvergenceWarning": "errors",
    "CurvatureError": "errors",
    "DivergenceError": "errors",
    "FileError": "errors",
    "HyperparameterWarning": "errors",
    "InputError": "errors",
    "OrnsteinError": "errors",
    "OrnsteinWarning": "errors",
    "StabilityError": "errors",
    "StationarityWarning": "errors",
    "TrustWarning": "errors",
}

__all__ = [*sorted(_WHERE), "theory"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import ornstein` does not load JAX."""
    if name in ("theory",):
        return import_module(f"ornstein.{name}")
    if name not in _WHERE:
        raise AttributeError(f"module 'ornstein' has no attribute {name!r}")
    value = getattr(import_module(f"ornstein.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


class _Package(ModuleType):
    """Keeps `orn.glm` and `orn.sample` the functions: a submodule that is imported would put itself in their place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _WHERE and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


if TYPE_CHECKING:
    from ornstein import theory as theory
    from ornstein.averaging import Average as Average
    from ornstein.averaging import average as average
    from ornstein.baselines.bbvi import bbvi as bbvi
    from ornstein.baselines.laplace import laplace as laplace
    from ornstein.baselines.low_rank import low_rank as low_rank
    from ornstein.baselines.nuts import nuts as nuts
    from ornstein.check_gradients import check_gradients as check_gradients
    from ornstein.checkpoint import resume as resume
    from ornstein.compare import compare as compare
    from ornstein.compilation_cache import cache_compilations as cache_compilations
    from ornstein.curvature import Curvature as Curvature
    from ornstein.curvature import measure as measure
    from ornstein.diagnostics.verdict import Verdict as Verdict
    from ornstein.dynamics import Dynamics as Dynamics
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
    from ornstein.errors import StabilityError as StabilityError
    from ornstein.errors import StationarityWarning as StationarityWarning
    from ornstein.errors import TrustWarning as TrustWarning
    from ornstein.errors import WindowWarning as WindowWarning
    from ornstein.glm import GLM as GLM
    from ornstein.glm import glm as glm
    from ornstein.hyper.em import em as em
    from ornstein.hyper.fit import EMFit as EMFit
    from ornstein.interfaces.estimators import BayesianClassifier as BayesianClassifier
    from ornstein.interfaces.estimators import BayesianPoissonRegressor as BayesianPoissonRegressor
    from ornstein.interfaces.estimators import BayesianRegressor as BayesianRegressor
    from ornstein.interfaces.numpyro import from_numpyro as from_numpyro
    from ornstein.model import Model as Model
    from ornstein.posterior import Posterior as Posterior
    from ornstein.prediction import Prediction as Prediction
    from ornstein.sample import sample as sample
    from ornstein.samplers.constant_sgd import ConstantSGD as ConstantSGD
    from ornstein.samplers.iasg import IASG as IASG
    from ornstein.samplers.sgfs import SGFS as SGFS
    from ornstein.samplers.sghmc import SGHMC as SGHMC
    from ornstein.samplers.sgld import SGLD as SGLD
    from ornstein.samplers.sgld import robbins_monro as robbins_monro
    from ornstein.samplers.sgnht import SGNHT as SGNHT
    from ornstein.storage import load as load
    from ornstein.streaming import open_table as open_table
    from ornstein.theory import Gaussian as Gaussian
    from ornstein.theory import kl as kl
