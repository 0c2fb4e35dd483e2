"""The one way files are written: beside the old one, flushed to the disk, then renamed over it.

Whatever happens meanwhile (a full disk, Ctrl-C, the power), `path` holds the old file or the new
one, never half of either. Each writer has a folder of its own to write in, so that several may
write to one path at once: the last one to finish wins.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ornstein.errors import FileError

if sys.platform != "win32":  # there, what a killed process leaves behind stays
    import fcntl

_PREFIX, _SUFFIX = ".ornstein-", ".part"


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A place to write the new file to; it comes to `path` when the block ends without an error.

    An OSError in the block, such as a full disk, becomes a FileError that names `path`.
    """
    try:
        target = _real_target(Path(path))
        with _folder_beside(target) as folder:
            temporary = folder / target.name
            yield temporary
            _keep_mode(target, temporary)
            _sync(temporary)
            os.replace(temporary, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error


def _real_target(path: Path) -> Path:
    """Where a symbolic link leads to; what is no ordinary file, or may not be written, is
    refused.
    """
    if not path.name or path.is_dir():
        raise FileError(f"cannot write {path}: it is a folder")
    if path.exists() and not path.is_file():
        raise FileError(f"cannot write {path}: it is not an ordinary file")
    if path.exists() and not os.access(path, os.W_OK):
        raise FileError(f"cannot write {path}: it is write-protected")
    return Path(os.path.realpath(path))


@contextmanager
def _folder_beside(target: Path) -> Iterator[Path]:
    """A new folder on the same file system, removed at the end; so are those whose writer died."""
    _sweep(target.parent)
    folder, lock = _locked_folder(target.parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked_folder(parent: Path) -> tuple[Path, int]:
    """A new folder and the lock that tells a later `_sweep` that its writer lives."""
    while True:
        folder = parent / f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}"
        folder.mkdir(mode=0o700)
        with suppress(FileNotFoundError):  # swept away before it was locked: take another
            lock = os.open(folder, os.O_RDONLY)
            if _locked(lock) is not False and _is_open_at(lock, folder):
                return folder, lock
            os.close(lock)


def _sweep(parent: Path) -> None:
    """Remove what killed processes left behind."""
    with suppress(OSError), os.scandir(parent) as entries:
        left = [
            Path(entry.path)
            for entry in entries
            if entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX)
        ]
        for folder in left:
            with suppress(OSError):
                lock = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
                try:
                    if _locked(lock):
                        shutil.rmtree(folder, ignore_errors=True)
                finally:
                    os.close(lock)


def _locked(descriptor: int) -> bool | None:
    """Whether the lock is now ours; None where the file system has no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_open_at(descriptor: int, folder: Path) -> bool:
    return os.path.samestat(os.fstat(descriptor), os.stat(folder))


def _keep_mode(target: Path, temporary: Path) -> None:
    """The permissions of the file that is replaced."""
    with suppress(FileNotFoundError):
        os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself last; not every file system can."""
    with suppress(OSError):
        _sync(folder)
