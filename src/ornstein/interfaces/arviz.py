"""To ArviZ, whose 0.x and 1.x differ in how arrays are handed over."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray


def inference_data(
    posterior: dict[str, Array],
    attributes: dict[str, Any],
    coords: dict[str, list[str]] | None = None,
    dims: dict[str, list[str]] | None = None,
) -> Any:
    """An InferenceData (0.x) or DataTree (1.x) with one posterior group."""
    import arviz

    if int(arviz.__version__.split(".")[0]) >= 1:
        tree = arviz.from_dict({"posterior": posterior}, coords=coords, dims=dims)
        tree["posterior"].attrs.update(attributes)
        return tree
    return arviz.from_dict(
        posterior=posterior, posterior_attrs=attributes, coords=coords, dims=dims
    )
