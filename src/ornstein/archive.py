"""One .npz file of plain arrays with a JSON text among them: written atomically, read without trust.

Nothing in such a file is executed or unpickled, and no array is allocated before its announced size has been held against the
bytes that are really there. The text lists the arrays, so that one that went missing is noticed.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ornstein.errors import FileError

Array = np.ndarray
META = "meta"
_KINDS = "biufU"


def write_archive(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write a temporary file beside `path`, flush it to the disk, then rename it: there is never half a file at `path`."""
    if not path.name or path.is_dir():
        raise FileError(f"cannot write {path}: it is a folder")
    temporary = path.with_name(f".{path.name}.part")
    whole = {name: np.asarray(array) for name, array in arrays.items()}
    text = json.dumps({**meta, "arrays": sorted(whole)})
    contents: dict[str, Any] = {META: np.array(text), **whole}
    try:
        with open(temporary, "wb") as file:
            np.savez(file, allow_pickle=False, **contents)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error


def read_archive(path: str | Path, format_name: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """The text and the arrays of a file whose "format" is `format_name`; anything else is a FileError."""
    try:
        with zipfile.ZipFile(path) as archive:
            _require_plain(archive, os.path.getsize(path))
            arrays = {
                entry.filename.removesuffix(".npy"): _array(archive.read(entry))
                for entry in archive.infolist()
            }
        meta = json.loads(str(arrays.pop(META)))
    except FileNotFoundError as error:
        raise FileError(f"there is no file {path}") from error
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # whatever a forged or damaged file makes zipfile, NumPy's header parser or json stumble over
        raise FileError(
            f"{path} is not a file saved by ornstein, or it is damaged ({type(error).__name__})"
        ) from error
    found = meta.get("format") if isinstance(meta, dict) else None
    if found != format_name:
        raise FileError(f"{path} has format {found!r}, where {format_name!r} is expected")
    if meta.pop("arrays", None) != sorted(arrays):
        raise FileError(f"{path} is damaged: the arrays in it are not the ones that it lists")
    return meta, arrays


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
    """An array from the bytes of an .npy file, whose header must announce exactly the bytes that follow."""
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
        raise ValueError("an array whose size is not the announced one")
    flat = np.frombuffer(content, dtype=dtype, offset=stream.tell())
    return flat.reshape(shape, order="F" if fortran_order else "C").copy()


def _sync_folder(folder: Path) -> None:
    """Make the rename itself last; not every file system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
