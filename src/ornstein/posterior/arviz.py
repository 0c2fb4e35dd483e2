"""To ArviZ, whose 0.x and 1.x differ in how arrays are handed over."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ornstein.types import Array


def inference_data(
    posterior: dict[str, Array],
    attributes: Mapping[str, object],
    coords: dict[str, list[str]] | None = None,
    dims: dict[str, list[str]] | None = None,
    others: Mapping[str, dict[str, Array]] | None = None,
) -> Any:
    """An InferenceData (0.x) or DataTree (1.x) with a posterior group, and others by name."""
    arviz = _imported()
    more: dict[str, Any] = dict(others or {})

    attributes = {_storable(name): _storable(value) for name, value in attributes.items()}
    if coords is not None:
        coords = {name: [_storable(label) for label in labels] for name, labels in coords.items()}
    if int(arviz.__version__.split(".")[0]) >= 1:
        tree = arviz.from_dict({"posterior": posterior, **more}, coords=coords, dims=dims)
        tree["posterior"].attrs.update(attributes)
        return tree
    return arviz.from_dict(
        posterior=posterior, posterior_attrs=attributes, coords=coords, dims=dims, **more
    )


def _imported() -> ModuleType:
    """ArviZ, without what 0.23 announces of its successor at its first import of a day."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing a major refactor", FutureWarning)
        import arviz
    return arviz


def netcdf_bytes(data: Any) -> bytes:
    """The file that `data.to_netcdf` would write, made in memory: HDF5 crashes on a full disk."""
    group = data["posterior"]
    dataset = group.to_dataset() if hasattr(group, "to_dataset") else group  # 1.x, 0.x
    packed = {name: {"zlib": True} for name in dataset.data_vars}
    return bytes(dataset.to_netcdf(None, group="posterior", engine="h5netcdf", encoding=packed))


def _storable(value: Any) -> Any:
    """A text without what no netCDF file can hold: NUL, and halves of surrogate pairs."""
    if not isinstance(value, str):
        return value
    return value.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
