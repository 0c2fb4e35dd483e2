"""One .npz file of plain arrays with a JSON text among them: written atomically, read without
trust.

Nothing in such a file is executed or unpickled, and no array is allocated before its announced size
has been compared with the bytes that are really there. The text lists the arrays, so that one that
went missing is noticed.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ornstein.errors import FileError
from ornstein.posterior.files import replacing
from ornstein.types import Array, Meta, PyTree

META = "meta"
_KINDS = "biufU"


def write_archive(path: Path, meta: Mapping[str, object], arrays: Mapping[str, Array]) -> None:
    """Write the file beside `path`, then rename it: there is never half a file at `path`."""
    whole = {name: np.asarray(array) for name, array in arrays.items()}
    unnameable = next((name for name in whole if "\0" in name), None)
    if unnameable is not None:
        raise FileError(f"cannot write {path}: no array can be named {unnameable!r}")
    text = json.dumps({**meta, "arrays": sorted(whole)})
    contents: dict[str, Any] = {META: np.array(text), **whole}
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, allow_pickle=False, **contents)


def read_archive(path: str | Path, format_name: str) -> tuple[Meta, dict[str, Array]]:
    """The text and the arrays of a file whose "format" is `format_name`; anything else is a
    FileError.
    """
    try:
        with _opened(path) as archive:
            arrays = {
                entry.filename.removesuffix(".npy"): _array(archive.read(entry))
                for entry in archive.infolist()
            }
        meta = json.loads(str(arrays.pop(META)))
    except FileNotFoundError as error:
        raise FileError(f"there is no file {path}") from error
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    # Whatever a forged or damaged file makes zipfile, NumPy's header parser or json stumble over.
    except Exception as error:
        raise FileError(
            f"{path} is not a file saved by ornstein, or it is damaged ({type(error).__name__})"
        ) from error
    found = meta.get("format") if isinstance(meta, dict) else None
    if found != format_name:
        raise FileError(f"{path} has format {found!r}, where {format_name!r} is expected")
    if meta.pop("arrays", None) != sorted(arrays):
        raise FileError(f"{path} is damaged: it does not hold the arrays that it lists")
    return meta, arrays


def format_of(path: str | Path) -> str:
    """The "format" that a file announces, without its arrays; "" where it is not one of ours."""
    try:
        with _opened(path) as archive:
            return str(json.loads(str(_array(archive.read(f"{META}.npy"))))["format"])
    except Exception:  # as in `read_archive`
        return ""


@contextmanager
def _opened(path: str | Path) -> Iterator[zipfile.ZipFile]:
    """The archive, held open: meanwhile another process may put a new file at `path`."""
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        _require_plain(archive, os.fstat(file.fileno()).st_size)
        yield archive


def _require_plain(archive: zipfile.ZipFile, size: int) -> None:
    """Stored, not compressed: then what is read cannot be larger than the file."""
    entries = archive.infolist()
    if any(
        entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size
        for entry in entries
    ):
        raise ValueError("compressed entries")
    if sum(entry.file_size for entry in entries) > size:
        raise ValueError("entries larger than the file")
    if len({entry.filename for entry in entries}) != len(entries):
        raise ValueError("an entry occurs twice")


def _array(content: bytes) -> Array:
    """An array from the bytes of an .npy file, whose header must announce exactly the bytes that
    follow.
    """
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, fortran_order, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise ValueError(f"version {version}")
    if dtype.kind not in _KINDS or dtype.hasobject or dtype.shape:
        raise ValueError(f"dtype {dtype}")
    if (
        any(length < 0 for length in shape)
        or math.prod(shape) * dtype.itemsize != len(content) - stream.tell()
    ):
        raise ValueError("an array whose size differs from its header")
    flat = np.frombuffer(content, dtype=dtype, offset=stream.tell())
    return flat.reshape(shape, order="F" if fortran_order else "C").copy()


def flattened(tree: Mapping[str, PyTree], prefix: str = "") -> dict[str, Array]:
    """A tree of arrays as one dictionary with paths for names.

    >>> sorted(flattened({"a": {"b": np.zeros(1)}, "c": np.zeros(1)}))
    ['a/b', 'c']
    """
    flat: dict[str, Array] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{name}/")
        else:
            flat[f"{prefix}{name}"] = np.asarray(value)
    return flat


def nested(flat: Mapping[str, Array]) -> dict[str, PyTree]:
    """The tree that `flattened` was given."""
    tree: dict[str, PyTree] = {}
    for path, value in flat.items():
        *parents, leaf = path.split("/")
        node = tree
        for name in parents:
            node = node.setdefault(name, {})
        node[leaf] = value
    return tree
