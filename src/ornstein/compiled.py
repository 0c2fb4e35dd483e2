"""Compiled code that is shared between equal models and forgotten when no longer used.

`jax.jit` with a static argument keeps every function it has ever seen. Here the compiled code hangs on a bounded cache instead,
so that a process that fits many different models does not grow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, partial, wraps
from typing import Any

import jax
from jax.errors import JaxRuntimeError

# The widest registers that the processor has: XLA leaves those of 512 bits alone, and functions of many rows take a third longer.
WIDE = {"xla_cpu_prefer_vector_width": 512}


@cache
def known_options(**wanted: Any) -> dict[str, Any]:
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
    function: Callable[..., Any],
    keep: int = 16,
    options: Callable[[], dict[str, Any]] = dict,
    given_away: tuple[int, ...] = (),
) -> Callable[..., Any]:
    """Compile `function(static, *arrays)` once per static argument, the last `keep` of them remembered.

    `options` gives XLA's options when they are needed first; the memory of the arrays `given_away` becomes that of results.
    """

    @lru_cache(maxsize=keep)
    def build(static: Any) -> Callable[..., Any]:
        return jax.jit(
            partial(function, static), compiler_options=options(), donate_argnums=given_away
        )

    @wraps(function)
    def call(static: Any, *arrays: Any) -> Any:
        return build(static)(*arrays)

    return call
