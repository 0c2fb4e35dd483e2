"""Compiled code that is shared between equal models and forgotten when no longer used.

`jax.jit` with a static argument keeps every function it has ever seen. Here the compiled code hangs
on a bounded cache instead, so that a process that fits many different models does not grow.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache, lru_cache, partial, wraps

import jax
from jax.errors import JaxRuntimeError
from jax.experimental.xla_metadata import set_xla_metadata

from ornstein.types import PyTree

# The widest registers that the processor has: XLA leaves those of 512 bits alone, and functions of
# many rows take a third longer.
WIDE = {"xla_cpu_prefer_vector_width": 512}
# Keeps XLA from taking sums over many rows with a library, which no kernel can do inside.
NO_LIBRARY = {"xla_cpu_experimental_ynn_fusion_type": ""}


@cache
def known_options(**wanted: object) -> dict[str, object]:
    """Those of the options that this XLA knows.

    >>> known_options(xla_no_such_option=1)
    {}
    """
    try:
        jax.jit(lambda number: number, compiler_options=wanted).lower(0.0).compile()
    except JaxRuntimeError:
        return (
            {}
            if len(wanted) == 1
            else {name: value for name, value in wanted.items() if known_options(**{name: value})}
        )
    return wanted


def compiled(
    function: Callable[..., PyTree],
    keep: int = 16,
    options: Callable[[], dict[str, object]] = dict,
    given_away: tuple[int, ...] = (),
) -> Callable[..., PyTree]:
    """Compile `function(static, *arrays)` once per static argument, the last `keep` of them
    remembered.

    `options` gives XLA's options when they are needed first; the memory of the arrays `given_away`
    becomes that of results.
    """

    @lru_cache(maxsize=keep)
    def build(static: Hashable) -> Callable[..., PyTree]:
        return jax.jit(
            partial(function, static), compiler_options=options(), donate_argnums=given_away
        )

    @wraps(function)
    def call(static: Hashable, *arrays: PyTree) -> PyTree:
        return build(static)(*arrays)

    return call


def compiled_as_several(
    function: Callable[..., PyTree], given_away: tuple[int, ...]
) -> Callable[..., PyTree]:
    """`compiled`, as XLA likes to do it with a loop: as several kernels, started at every step."""
    return compiled(function, options=partial(known_options, **WIDE), given_away=given_away)


def compiled_as_one_kernel(
    function: Callable[..., PyTree], given_away: tuple[int, ...]
) -> Callable[..., PyTree]:
    """`compiled`, as one kernel. XLA does so with loops over a few bytes; the marks make it do so
    with any, or mean nothing to it.
    """

    @wraps(function)
    def marked(static: Hashable, *arrays: PyTree) -> PyTree:
        with set_xla_metadata(xla_cpu_small_call="true", inlineable="false"):
            return jax.jit(partial(function, static))(*arrays)

    options = partial(known_options, **WIDE, **NO_LIBRARY)
    return compiled(marked, options=options, given_away=given_away)
