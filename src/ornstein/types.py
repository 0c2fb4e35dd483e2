"""The types that most signatures need: arrays and trees of them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray  # numbers on the host
Traced: TypeAlias = Any  # an array inside compiled code: JAX's, or the tracer that stands for it
PyTree: TypeAlias = Any  # arrays, or nested dicts, tuples and lists of them
Meta: TypeAlias = dict[str, Any]  # what a file says of itself, in the types of JSON
