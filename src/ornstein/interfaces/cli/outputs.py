"""Where results go: a folder made if need be, and no file of the user's written over.

A file of an earlier run may be written again. It is known by its content, not by its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ornstein.errors import FileError
from ornstein.interfaces.cli import console

FIT = ("fit.orn", "posterior.nc", "report.html")
PLOTS = ("marginals.png", "covariance.png", "chains.png", "calibration.png")
HEAD = 4096  # bytes at the beginning of a file within which its maker must be named


@contextmanager
def result_folder(
    path: Path, names: Sequence[str], inputs: Iterable[Path] = (), force: bool = False
) -> Iterator[Path]:
    """The folder for files of these names, made before any time is spent; an empty one is removed
    again where nothing came of it.
    """
    if path.exists() and not path.is_dir():
        raise FileError(f"{path} is a file; --out needs a folder")
    require_not_input([path, *(path / name for name in names)], inputs)
    earlier = [path / name for name in names if (path / name).exists()]
    require_own(earlier, is_ours, force)
    if earlier and not force:
        console.remark(f"{path} holds an earlier result, which will be replaced")
    made = _made(path)
    try:
        yield path
    finally:
        for folder in made:
            with suppress(OSError):  # not empty
                folder.rmdir()


def _made(path: Path) -> list[Path]:
    """The folders that had to be made, the innermost first."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make the folder {path}: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise FileError(f"cannot write into the folder {path}: it is write-protected")
    return missing


def require_not_input(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Refuse to write over what is read, under whatever name."""
    read = [path for path in inputs if path.exists()]
    for output in outputs:
        if output.exists() and any(output.samefile(path) for path in read):
            raise FileError(f"{output} is the input of this command: choose another --out")


def require_own(paths: Iterable[Path], is_own: Callable[[Path], bool], force: bool) -> None:
    """Refuse to write over a file that is not known for one of ours, unless forced to."""
    for path in paths:
        if not force and not is_own(path):
            raise FileError(
                f"{path} was not written by this command: choose another name, or add --force to"
                " overwrite it"
            )


def require_place(path: Path | None, inputs: Iterable[Path], force: bool) -> None:
    """Refuse to write a plot over an input, or over a file of the user's unless forced to."""
    if path is not None:
        require_not_input([path], inputs)
        require_own([path] if path.exists() else [], is_ours, force)


def is_ours(path: Path) -> bool:
    """Whether the file says of itself that ornstein wrote it."""
    known = {
        **{".orn": _is_fit, ".nc": _is_netcdf, ".html": _is_page},
        **{".png": _is_plot, ".svg": _is_drawing, ".pdf": _is_drawing},
    }
    return path.suffix in known and path.is_file() and known[path.suffix](path)


def _is_fit(path: Path) -> bool:
    from ornstein.posterior.archive import format_of

    return format_of(path).startswith("ornstein-")


def _is_netcdf(path: Path) -> bool:
    import h5py

    with suppress(OSError, KeyError), h5py.File(path, "r") as file:
        return "ornstein" in file["posterior"].attrs
    return False


def _is_page(path: Path) -> bool:
    head = _head(path)
    return any(
        mark in head
        for mark in (
            b'<meta name="generator" content="ornstein">',
            "· ornstein report</title>".encode(),  # before that
            b"<title>The paper reproduced</title>",
        )
    )


def _is_plot(path: Path) -> bool:
    return b"Software\0ornstein" in _head(path)


def _is_drawing(path: Path) -> bool:
    with suppress(OSError):
        content = path.read_bytes()
        return b"<dc:title>ornstein</dc:title>" in content or b"/Creator (ornstein)" in content
    return False


def _head(path: Path) -> bytes:
    with suppress(OSError), open(path, "rb") as file:
        return file.read(HEAD)
    return b""
