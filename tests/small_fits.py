"""Small fits for tests of many at once; a module that other processes can import."""

from __future__ import annotations

from helpers import logistic_data, regression_data

import ornstein as orn

FAMILIES = ("gaussian", "bernoulli")
SAMPLERS = ("full", "diagonal", "scalar")


def fit(number):
    """One of several small fits, told apart by their number; what is compared are all its draws."""
    family = FAMILIES[number % 2]
    X, y = (
        regression_data(80, 2, seed=number)
        if family == "gaussian"
        else logistic_data(80, 2, seed=number)
    )
    sampler = orn.ConstantSGD(SAMPLERS[number % 3])
    options = {
        "draws": 10,
        "chains": 2,
        "thin": 5,
        "warmup": 20,
        "batch_size": 8,
        "seed": number,
        "progress": False,
    }
    return orn.sample(orn.glm(X, y, family=family, prior_precision=1.0), sampler, **options).draws
