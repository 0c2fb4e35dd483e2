"""Data beyond memory: memory maps, and tables on disk that become one.

A minibatch needs a few rows from anywhere, at once. A memory-mapped .npy file gives them; columns
in compressed pieces (Parquet, Arrow, Zarr) do not, so those are written once, piece by piece, as
rows of an unnamed temporary file (`TMPDIR` says where) that vanishes with the process. Rows are
then gathered on the host by a thread that works ahead of the chain.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ornstein.checks import brief, printable
from ornstein.errors import InputError
from ornstein.types import Array

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset

PIECE_BYTES = 2**25


class Table(NamedTuple):
    """Columns of a table on disk: `features` as one memory map (N, F), `target` in memory."""

    features: Array
    names: tuple[str, ...]
    target: Array | None


def is_table_on_disk(source: object) -> bool:
    """Whether `open_table` reads it: a path, a Zarr array or a pyarrow data set or table.

    >>> is_table_on_disk("data/"), is_table_on_disk([[1.0]])
    (True, False)
    """
    library = type(source).__module__.split(".")[0]
    return (
        isinstance(source, str | Path)
        or library == "zarr"
        or (library == "pyarrow" and hasattr(source, "schema"))
    )


def open_table(source: object, target: str | None = None) -> Table:
    """A table larger than memory as rows that can be drawn at random.

    Args:
        source: an .npy file (mapped as it is), a Zarr array or its folder, a Parquet, Arrow or
            Feather file or a folder of them, or a pyarrow data set.
        target: the name of the column to be explained, for tables with named columns.
    """
    if type(source).__module__.split(".")[0] == "zarr":
        return Table(spilled_array(source), (), None)
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.exists():
            raise InputError(f"there is no table {path}")
        if path.suffix == ".npy":
            return Table(_mapped(path), (), None)
        if path.is_dir() and any((path / name).exists() for name in ("zarr.json", ".zarray")):
            return Table(
                spilled_array(_imported("zarr", "zarr").open_array(str(path), mode="r")), (), None
            )
    return _from_arrow(source, target)


def spilled_array(array: Any) -> Array:
    """A chunked array (Zarr) as a memory map, read one stretch of rows at a time."""
    if array.ndim == 0 or np.dtype(array.dtype).kind not in "fiub":
        raise InputError(
            f"an array on disk must be numeric with rows; it has dtype {array.dtype} and shape"
            f" {array.shape}"
        )
    rows = max(
        1, PIECE_BYTES // max(1, np.dtype(array.dtype).itemsize * math.prod(array.shape[1:]))
    )
    rows = max(1, rows // array.chunks[0]) * array.chunks[0]
    out = _temporary(tuple(array.shape), np.dtype(array.dtype))
    for start in range(0, array.shape[0], rows):
        out[start : start + rows] = array[start : start + rows]
    return out


def _from_arrow(source: object, target: str | None) -> Table:
    dataset = _arrow_dataset(source)
    names = [name for name in dataset.schema.names if name != target]
    if target is not None and target not in dataset.schema.names:
        raise InputError(
            f"the table has no column {target!r}; it has"
            f" {', '.join(map(printable, dataset.schema.names[:20]))}"
        )
    dtypes = [_column_dtype(dataset.schema.field(name)) for name in names]
    count = dataset.count_rows()
    if not names or not count:
        raise InputError(
            f"a table needs rows and columns; this one has {count} rows and {len(names)} columns to"
            " learn from"
        )
    features = _temporary((count, len(names)), np.result_type(np.float32, *dtypes))
    responses, start = [], 0
    for piece in dataset.to_batches(batch_size=max(1, PIECE_BYTES // (8 * len(names)))):
        stop = start + piece.num_rows
        for position, name in enumerate(names):
            column = piece.column(name)
            if column.null_count:
                raise InputError(
                    f"column {name!r} has a missing value between rows {start} and {stop}"
                )
            features[start:stop, position] = column.to_numpy(zero_copy_only=False)
        if target is not None:
            responses.append(piece.column(target).to_numpy(zero_copy_only=False))
        start = stop
    return Table(features, tuple(names), np.concatenate(responses) if responses else None)


def _arrow_dataset(source: object) -> pyarrow.dataset.Dataset:
    datasets = _imported("pyarrow.dataset", "tables")
    if not isinstance(source, str | Path):
        if hasattr(source, "to_batches") and hasattr(source, "count_rows"):
            return source
        try:
            return datasets.dataset(source)
        except (OSError, TypeError, ValueError) as error:
            raise InputError(
                "a table on disk must be the path of a file or folder, a Zarr array or a pyarrow"
                f" data set; got {brief(source)}"
            ) from error
    path = Path(source)
    found = next(_data_files(path), None)
    if found is None:
        raise InputError(f"{path} holds no .parquet, .arrow or .feather file")
    kind = "parquet" if found.suffix == ".parquet" else "ipc"
    try:
        return datasets.dataset(str(path), format=kind, exclude_invalid_files=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read as a table: {str(error).splitlines()[0]}"
        ) from error


def _data_files(path: Path) -> Iterator[Path]:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return (file for file in files if file.suffix in (".parquet", ".arrow", ".feather", ".ipc"))


def _column_dtype(column: pyarrow.Field) -> np.dtype:
    try:
        dtype = np.dtype(column.type.to_pandas_dtype())
    except (NotImplementedError, TypeError):
        dtype = np.dtype(object)
    if dtype.kind not in "fiub":
        raise InputError(f"column {column.name!r} must be numeric, not {column.type}")
    return dtype


def _mapped(path: Path) -> Array:
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} cannot be mapped: {str(error).splitlines()[0]}") from error
    if not isinstance(found, np.ndarray) or found.ndim == 0 or found.dtype.kind not in "fiub":
        raise InputError(
            f"{path} must hold a numeric array with rows; it holds dtype"
            f" {getattr(found, 'dtype', 'of none')} and shape {np.shape(found)}"
        )
    return found


def _temporary(shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """A memory map on a file without a name: its space is given back when nothing refers to it any
    more.
    """
    if 0 in shape:
        raise InputError(f"a table needs rows and columns; this one has shape {shape}")
    size = math.prod(shape) * dtype.itemsize
    with tempfile.TemporaryFile(prefix="ornstein-") as file:
        _reserve(file.fileno(), size)
        return np.memmap(file, dtype=dtype, mode="w+", shape=shape)


def _reserve(descriptor: int, size: int) -> None:
    """Claim the space now: a write to a mapped page for which the disk has none left would kill
    the process.
    """
    free = shutil.disk_usage(tempfile.gettempdir()).free
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
            return
    except OSError as error:
        # Where the file system cannot reserve, what it has free must do.
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS) or size > free:
            raise _no_room(size, free, error.strerror or str(error)) from error
        return
    if size > free:
        raise _no_room(size, free, os.strerror(errno.ENOSPC))


def _no_room(size: int, free: int, reason: str) -> InputError:
    return InputError(
        f"the table takes {size / 1e9:.3g} GB as rows on disk, and {tempfile.gettempdir()} has"
        f" {free / 1e9:.3g} GB free ({reason}): let the environment variable TMPDIR name a folder"
        " with more room"
    )


def _imported(module: str, extra: str) -> ModuleType:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(
            f"{module.split('.')[0]} is not installed: pip install 'ornstein[{extra}]'"
        ) from error
