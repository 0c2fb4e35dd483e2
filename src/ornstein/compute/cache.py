"""Compiled code kept on disk, so that the next process need not compile it again."""

from __future__ import annotations

import os
from pathlib import Path

from ornstein.checks import brief
from ornstein.errors import FileError, InputError


def cache_compilations(folder: str | Path | None = None) -> Path:
    """Keep what JAX compiles in a folder, for this and all later processes that name the same one.

    A fit then starts without the seconds that compiling takes. Draws do not change. Call it once,
    before the first fit; it is a setting of JAX for the whole process, and so also serves other JAX
    code. Setting the environment variable `JAX_COMPILATION_CACHE_DIR` is JAX's own way, but leaves
    out what compiles within a second, which is most of ornstein.

    Args:
        folder: where; None is `$XDG_CACHE_HOME/ornstein/compiled`, or `~/.cache/ornstein/compiled`.
            Made where it is absent. Only a folder that you alone can write to: cached files are
            executed.

    Returns:
        The folder.

    """
    if folder is not None and not isinstance(folder, str | os.PathLike):
        raise InputError(f"folder must be the name of a folder; got {brief(folder)}")
    place = _default_folder() if folder is None else Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"compiled code cannot be kept in {place}: {error.strerror}") from error

    import jax
    from jax.experimental.compilation_cache import compilation_cache

    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # JAX decides at its first compilation whether there is a cache, and asks no more
    compilation_cache.reset_cache()
    return place


def _default_folder() -> Path:
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ornstein" / "compiled"
    )
