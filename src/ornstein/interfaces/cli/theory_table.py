"""Which step size for this N, S, D, C? Every sampler's tuning and what theory predicts of it,
without a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.errors import FileError, InputError, OrnsteinError
from ornstein.interfaces.cli import console
from ornstein.samplers import FORMS, sampler_by_name

if TYPE_CHECKING:
    import pandas

    from ornstein.curvature.curvature import Curvature

Array = np.ndarray


def show_theory(
    rows: int,
    batch_size: int,
    dimension: int | None,
    noise: str,
    hessian: str | None,
    samplers: Sequence[str] | None,
) -> None:
    """Print the table, and the paper's rate in closed form."""
    curvature = curvature_of(rows, dimension, noise, hessian)
    size = curvature.dim
    trace = float(np.trace(curvature.noise))
    console.remark(
        f"N = {rows:,}, S = {batch_size:,}, D = {size:,}, tr C = {trace:.4g}, tr A ="
        f" {np.trace(curvature.hessian):.4g}"
    )
    if hessian is None:
        console.remark(
            "A is taken equal to C, as for a well-specified model; give --hessian where it is not"
        )
    frame = theory_table(curvature, batch_size, samplers or tuple(FORMS))
    console.show_frame(
        frame, "Steps H of θ' = θ − H ĝ(θ), tuned to be nearest the posterior", "sampler"
    )
    rate = 2.0 * batch_size * size / (rows * trace)
    console.say()
    console.say(f"The paper's constant rate (Theorem 1, small steps): 2SD/(N tr C) = {rate:.4g}")
    console.say(
        "Full preconditioner, exact: H = 2 (A + (N/S) C)⁻¹; its law is the posterior itself"
    )
    console.say("In its own paper's units SGLD's step is ε = 2H/N")


def theory_table(
    curvature: Curvature, batch_size: int, samplers: Sequence[str]
) -> pandas.DataFrame:
    """One row per sampler: step, largest stable step, relaxation time and both KL; the reason where
    it cannot run.
    """
    import pandas

    found = {name: _row(curvature, batch_size, name) for name in samplers}
    return pandas.DataFrame.from_dict(found, orient="index").fillna("–")


def _row(curvature: Curvature, batch_size: int, name: str) -> dict[str, Any]:
    try:
        dynamics = sampler_by_name(name).tune(curvature, batch_size=batch_size)
    except OrnsteinError as error:
        if isinstance(error, InputError):
            raise
        return {"step": str(error)}
    prediction = dynamics.predict(curvature)
    scalar = dynamics.preconditioner.ndim == 0
    return {
        "step": _extent(dynamics.preconditioner),
        "stable below": console.number(prediction.step_bound) + ("" if scalar else " × H"),
        "relaxes in (steps)": prediction.relaxation_time,
        "KL(q‖p)": _rounded(prediction.kl_qp),
        "KL(p‖q)": _rounded(prediction.kl_pq),
    }


def _rounded(divergence: float) -> float:
    """Rounding noise around zero is zero."""
    return 0.0 if abs(divergence) < 1e-9 else divergence


def _extent(step: Array) -> str:
    """A step as one number, or the range of its eigenvalues."""
    values = step.reshape(-1) if step.ndim < 2 else np.linalg.eigvalsh(step)
    low, high = float(values.min()), float(values.max())
    return console.number(high) if high - low <= 1e-6 * high else f"{low:.3g} … {high:.3g}"


def curvature_of(rows: int, dimension: int | None, noise: str, hessian: str | None) -> Curvature:
    """A Curvature from what was typed."""
    from ornstein.curvature.curvature import Curvature

    given = [_matrix("--noise", noise), _matrix("--hessian", noise if hessian is None else hessian)]
    sizes = {matrix.shape[0] for matrix in given if matrix.ndim} | (
        {dimension} if dimension else set()
    )
    if not sizes:
        raise InputError("give --dimension, or --noise as D numbers or a file")
    if len(sizes) > 1:
        raise InputError(
            "--dimension, --noise and --hessian disagree on the number of parameters:"
            f" {sorted(sizes)}"
        )
    size = sizes.pop()
    c, a = (
        matrix if matrix.ndim == 2 else np.diag(np.broadcast_to(matrix, (size,)))
        for matrix in given
    )
    return Curvature(mode=np.zeros(size), hessian=a, noise=c, n_data=rows)


def _matrix(option: str, text: str) -> Array:
    """A number, a list of numbers, or the matrix in a file."""
    path = Path(text)
    if path.suffix.lower() in (".npy", ".csv"):
        matrix = _from_file(path)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise InputError(
                f"{path.name} must hold a square matrix of numbers without a header; it has shape"
                f" {matrix.shape}"
            )
        return matrix
    try:
        numbers = np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise InputError(
            f"{option} must be a number, numbers with commas between, or a .csv or .npy file; got"
            f" {text!r}"
        ) from None
    if not np.all(np.isfinite(numbers)) or np.any(numbers <= 0):
        raise InputError(f"{option} must be positive; got {text}")
    return numbers if numbers.size > 1 else numbers[0]


def _from_file(path: Path) -> Array:
    try:
        if path.suffix.lower() == ".npy":
            return np.asarray(np.load(path, allow_pickle=False), dtype=float)
        return np.loadtxt(path, delimiter=",", ndmin=2)
    except FileNotFoundError as error:
        raise FileError(f"there is no file {path}") from error
    except (OSError, ValueError, EOFError) as error:
        raise FileError(f"{path.name} does not hold a matrix of numbers: {error}") from error
