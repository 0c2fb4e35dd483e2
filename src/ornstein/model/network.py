"""Networks as a whole: the message about them, and what to do instead."""

from __future__ import annotations

import warnings

from ornstein.errors import NetworkError, TrustWarning
from ornstein.model.model import Model

# Parameters times this are more than the rows: then they cannot all be learnt from them.
SHARE = 10
INSTEAD = (
    "For predictions with honest uncertainty keep the trained network and use orn.last_layer,"
    " orn.from_torch, orn.from_flax, orn.from_equinox or orn.from_sklearn (its last layer),"
    " temperature scaling, or an ensemble of five networks. To sample all of it, name a sampler:"
    " orn.sample(model, 'nuts')"
)


def whole_network(model: Model) -> str:
    """Why a model counts as a network as a whole, in words; empty where it does not.

    Beside hidden units it takes more parameters than a tenth of the rows: with fewer the rows may
    well say where they lie.
    """
    if model.linear is not None or SHARE * model.dim <= model.observations:
        return ""
    units = model.hidden_units
    if units is None:
        return ""
    return (
        f"the model is a network as a whole: {units}, and there are {model.dim:,} parameters for"
        f" {model.observations:,} rows"
    )


def require_no_network(model: Model) -> None:
    """Refuse to choose a way for a whole network, with what to do instead."""
    if found := whole_network(model):
        raise NetworkError(f"{found}. No method here is known to reach its posterior. {INSTEAD}")


def warn_of_network(model: Model, stacklevel: int = 3) -> None:
    """A TrustWarning where a whole network is sampled all the same."""
    if found := whole_network(model):
        warnings.warn(
            f"{found}. At best, use these draws with caution. {INSTEAD}",
            TrustWarning,
            stacklevel=stacklevel,
        )
