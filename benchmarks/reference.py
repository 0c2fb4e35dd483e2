"""The posterior that every method is compared with.

A linear regression with known noise has a normal posterior, and Laplace's approximation is it.
Elsewhere: Hamiltonian Monte Carlo with gradients of all data in coordinates where Laplace's
approximation is N(0, I), run beside a twin on N(0, I) itself that gets the same momenta and the
same uniform numbers. The twin's moments are known, so only the *difference* between the two chains
has to be estimated, which is small where the posterior is close to normal: a few hundred draws do
for hundreds of parameters.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.problems import Problem, arrays_of, model_of
from benchmarks.stored import FOLDER

STEP, LEAPS = 0.25, 6  # a quarter of the period of N(0, I): draws nearly independent
DRAWS = {"skin": 2000, "covertype": 2000}


def problem_of(
    name: str, directory: str | None = None, rows: int | None = None, draws: int | None = None
) -> Problem:
    """The data with their reference, computed once and kept beside the results."""
    family, features, response = arrays_of(name, directory, rows)
    found = _reference(
        name, model_of(family, features, response), len(response), draws or DRAWS.get(name, 0)
    )
    mean, covariance = np.array(found["mean"]), np.array(found["covariance"])
    return Problem(name, family, features, response, mean, covariance, found["error"])


def _reference(name: str, model: Any, rows: int, draws: int) -> dict[str, Any]:
    path = FOLDER / f"reference-{name}.json"
    if path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if (kept["rows"], kept["draws"]) == (rows, draws):
            return kept
    import ornstein as orn

    curvature = orn.measure(model)
    mean, covariance, error = curvature.mode, curvature.posterior_covariance, 0.0
    if draws:
        mean, covariance, error = corrected(model, curvature, draws)
    if model.dim > 100:
        covariance = np.diagonal(covariance)
    found = {
        "rows": rows,
        "draws": draws,
        "error": error,
        "mean": mean.tolist(),
        "covariance": covariance.tolist(),
    }
    if draws:  # the others take a moment
        FOLDER.mkdir(exist_ok=True)
        path.write_text(json.dumps(found) + "\n", encoding="utf-8")
    return found


def corrected(
    model: Any, curvature: Any, draws: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean, covariance, and the KL that their Monte-Carlo error alone makes between the marginals,
    about.
    """
    root = np.linalg.cholesky(curvature.posterior_covariance)
    chain, twin = coupled_chains(_potential(model, curvature, root), model.dim, draws, seed)
    mean = np.mean(chain - twin, axis=0)
    second = np.eye(model.dim) + (chain.T @ chain - twin.T @ twin) / draws
    covariance = second - np.outer(mean, mean)
    gap, gap_of_squares = np.var(chain - twin, axis=0), np.var(chain**2 - twin**2, axis=0)
    error = float(np.sum(gap / 2.0 + gap_of_squares / 4.0) / draws)
    return curvature.mode + root @ mean, root @ covariance @ root.T, error


def _potential(
    model: Any, curvature: Any, root: np.ndarray
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """−log posterior and its gradient in the whitened coordinates, in float64."""
    import jax

    from ornstein.compute.precision import width

    with width("float64"):
        problem = model.problem("float64", curvature.mode)

    @jax.jit
    def compiled(problem: Any, displacement: Any) -> Any:
        return jax.value_and_grad(model.loss.minibatch, argnums=1)(
            problem, displacement, problem.data
        )

    def potential(place: np.ndarray) -> tuple[float, np.ndarray]:
        with width("float64"):
            value, slope = compiled(problem, root @ place)
        return model.n_data * float(value), model.n_data * (root.T @ np.asarray(slope))

    return potential


def coupled_chains(
    potential: Callable[[np.ndarray], tuple[float, np.ndarray]],
    dimension: int,
    draws: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of HMC on the potential, and of HMC on N(0, I) with the same random numbers."""
    rng = np.random.default_rng(seed)

    def normal(place: np.ndarray) -> tuple[float, np.ndarray]:
        return 0.5 * float(place @ place), place

    start = rng.standard_normal(dimension)
    states = [(start, *potential(start)), (start, *normal(start))]
    kept = np.empty((2, draws, dimension))
    burn, started, said = 20, time.monotonic(), time.monotonic()
    for number in range(-burn, draws):
        momentum, uniform = rng.standard_normal(dimension), rng.random()
        states = [
            _transition(force, state, momentum, uniform)
            for force, state in zip((potential, normal), states, strict=True)
        ]
        if number >= 0:
            kept[:, number] = [state[0] for state in states]
        if time.monotonic() - said > 60.0:
            said = time.monotonic()
            print(
                f"reference: {number + burn} of {draws + burn} draws in {said - started:.0f} s",
                flush=True,
            )
    return kept[0], kept[1]


def _transition(potential: Any, state: Any, momentum: np.ndarray, uniform: float) -> Any:
    place, value, slope = state
    energy = value + 0.5 * momentum @ momentum
    moved, speed = place, momentum
    new_value = value
    new_slope = slope
    for _ in range(LEAPS):
        speed = speed - 0.5 * STEP * new_slope
        moved = moved + STEP * speed
        new_value, new_slope = potential(moved)
        speed = speed - 0.5 * STEP * new_slope
    accepted = np.log(uniform) < energy - new_value - 0.5 * speed @ speed
    return (moved, new_value, new_slope) if accepted else state
