"""Bayesian posteriors at the price of SGD: stochastic gradients as a sampler, tuned by theory and
checked against it.

The flow: `Model` → `measure` → a sampler's `tune` → `sample` → `Posterior.check`.
"""

from importlib import import_module

from ornstein import samplers as _samplers
from ornstein._version import __version__ as __version__

# Where each public name lives; `__init__.pyi` says the same to type checkers.
_WHERE = {
    # From a table
    "fit": "entrances.running",
    "regress": "entrances.models",
    # Models
    "glm": "entrances.models",
    "glmm": "entrances.models",
    "MixedPriors": "model.mixed.priors",
    "GLM": "model.regression",
    "Model": "model.model",
    "from_numpyro": "interfaces.numpyro.model",
    "last_layer": "interfaces.networks.last_layer",
    "from_torch": "interfaces.networks.torch",
    "from_flax": "interfaces.networks.flax",
    "from_equinox": "interfaces.networks.equinox",
    "from_sklearn": "interfaces.networks.sklearn",
    "open_table": "model.on_disk",
    "check_gradients": "curvature.check_gradients",
    # Curvature
    "measure": "curvature.measure",
    "Curvature": "curvature.curvature",
    # Samplers, dynamics and what theory predicts
    **_samplers.PUBLIC,
    "average": "sampling.averaging",
    "Average": "sampling.averaging",
    "Dynamics": "dynamics.dynamics",
    "Minibatches": "dynamics.minibatches",
    "Prediction": "dynamics.prediction",
    # Running
    "sample": "entrances.running",
    "resume": "entrances.running",
    "plan": "ways.plan",
    "Plan": "ways.plan",
    "cache_compilations": "compute.cache",
    # Results
    "Posterior": "posterior.posterior",
    "LastLayerPosterior": "posterior.last_layer",
    "Calibration": "posterior.last_layer",
    "loo_compare": "posterior.loo",
    "Loo": "posterior.loo",
    "Effects": "posterior.effects",
    "Predictive": "posterior.predictive",
    "Critique": "critique.critique",
    "Verdict": "verdict.verdict",
    "load": "posterior.storage",
    "compare": "posterior.comparison",
    # Baselines
    "laplace": "baselines.laplace",
    "gaussian_vi": "baselines.gaussian_vi",
    "bbvi": "baselines.bbvi",
    "hmc": "baselines.hmc",
    "nuts": "baselines.nuts",
    "low_rank": "baselines.low_rank",
    # Hyperparameters
    "em": "hyper.em",
    "EMFit": "hyper.fit",
    # scikit-learn
    "BayesianRegressor": "interfaces.sklearn.estimators",
    "BayesianClassifier": "interfaces.sklearn.estimators",
    "BayesianPoissonRegressor": "interfaces.sklearn.estimators",
    # Theory
    "Gaussian": "theory",
    "kl": "theory",
    # Errors and warnings
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
    "NetworkError": "errors",
    "OrnsteinError": "errors",
    "OrnsteinWarning": "errors",
    "PredictionWarning": "errors",
    "StabilityError": "errors",
    "StationarityWarning": "errors",
    "TrustWarning": "errors",
    "WayError": "errors",
    "WindowWarning": "errors",
}

# Namespaces: modules whose names are public too.
_NAMESPACES = {"families": "model.families", "priors": "model.priors", "theory": "theory"}

__all__ = sorted([*_WHERE, *_NAMESPACES])


def __getattr__(name: str) -> object:
    """Import on first use, so that `import ornstein` does not load JAX."""
    if name in _NAMESPACES:
        return import_module(f"ornstein.{_NAMESPACES[name]}")
    if name not in _WHERE:
        raise AttributeError(f"module 'ornstein' has no attribute {name!r}")
    value = getattr(import_module(f"ornstein.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
