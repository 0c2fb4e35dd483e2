"""Bad input gets one plain sentence, at construction."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import regression_data

import ornstein as orn

X, Y = regression_data(40, 3)
LABELS = (Y > 0).astype(int)


def changed(array, value, at=(7, 1)):
    copy = np.array(array, dtype=float)
    copy[at[: copy.ndim]] = value
    return copy


def model(log_likelihood=lambda t, x: -0.5 * (x[0] - t) ** 2, data=X, **settings):
    return orn.Model(log_likelihood, data, **{"init": jnp.zeros(()), **settings})


def curvature():
    return orn.measure(orn.glm(X, Y, noise_scale=1.0))


REFUSED = {
    "NaN in X": (
        lambda: orn.glm(changed(X, np.nan), Y),
        r"X holds a value that is not finite in column 'x1', first in row 7",
    ),
    "infinity in X": (
        lambda: orn.glm(changed(X, np.inf), Y),
        r"X holds a value that is not finite",
    ),
    "NaN in y": (
        lambda: orn.glm(X, changed(Y, np.nan)),
        r"y holds a value that is not finite.*row 7",
    ),
    "NaN in labels": (
        lambda: orn.glm(X, changed(LABELS, np.nan), "bernoulli"),
        r"y holds a value that is not finite",
    ),
    "NaN in weights": (
        lambda: orn.glm(X, Y, weights=changed(Y**2, np.nan)),
        r"weights holds a value that is not finite",
    ),
    "infinity in offset": (
        lambda: orn.glm(X, Y, offset=changed(Y, np.inf)),
        r"offset holds a value that is not finite",
    ),
    "NaN in data": (
        lambda: model(data=changed(X, np.nan)),
        r"data holds a value that is not finite",
    ),
    "y too short": (lambda: orn.glm(X, Y[:-1]), r"X has 40 rows but y has 39"),
    "weights too short": (
        lambda: orn.glm(X, Y, weights=np.ones(3)),
        r"X has 40 rows but weights has 3",
    ),
    "offset too short": (
        lambda: orn.glm(X, Y, offset=np.ones(3)),
        r"X has 40 rows but offset has 3",
    ),
    "lengths differ": (lambda: model(data={"a": X, "b": Y[:-1]}), r"different lengths: \[39, 40\]"),
    "a scalar among data": (lambda: model(data={"a": X, "b": 3.0}), r"leading axis"),
    "no data": (lambda: model(data={}), r"no arrays"),
    "no rows": (lambda: orn.glm(X[:0], Y[:0]), r"rows and columns"),
    "no columns": (lambda: orn.glm(X[:, :0], Y), r"rows and columns|no columns"),
    "text in data": (lambda: model(data=np.array(["a", "b"])), r"numeric"),
    "text in X": (lambda: orn.glm([["a"], ["b"]], [1.0, 2.0]), r"numeric"),
    "three axes": (lambda: orn.glm(X[None], Y), r"two axes"),
    "unknown family": (
        lambda: orn.glm(X, Y, "gama-rays"),
        r"unknown family 'gama-rays'; choose one of",
    ),
    "too many labels": (
        lambda: orn.glm(X, np.arange(40) % 3, "bernoulli"),
        r"needs two labels; y holds 3",
    ),
    "one label": (lambda: orn.glm(X, np.ones(40), "bernoulli"), r"one class only"),
    "a regression target as labels": (lambda: orn.glm(X, Y, "categorical"), r"different labels"),
    "a missing label": (
        lambda: orn.glm(X, [None, *["a", "b", "c"] * 13], "categorical"),
        r"missing label",
    ),
    "negative counts": (lambda: orn.glm(X, LABELS - 1.0, "poisson"), r"counts 0, 1, 2"),
    "fractional counts": (lambda: orn.glm(X, LABELS + 0.5, "poisson"), r"counts 0, 1, 2"),
    "negative precision": (
        lambda: orn.glm(X, Y, prior_precision=-1.0),
        r"prior_precision must be finite and not negative; got -1.0",
    ),
    "negative precision among others": (
        lambda: orn.glm(X, Y, prior_precision=[1, -2, 1]),
        r"not negative; got -2.0",
    ),
    "infinite precision": (
        lambda: orn.glm(X, Y, prior_precision=np.inf),
        r"prior_precision must be finite",
    ),
    "precisions of another length": (
        lambda: orn.glm(X, Y, prior_precision=[1, 2]),
        r"one number or one per column \(3\)",
    ),
    "negative intercept precision": (
        lambda: orn.glm(X, Y, intercept_precision=-1.0),
        r"intercept_precision must be",
    ),
    "noise scale zero": (
        lambda: orn.glm(X, Y, noise_scale=0.0),
        r"noise_scale must be a positive number or 'infer'; got 0.0",
    ),
    "noise scale unknown": (lambda: orn.glm(X, Y, noise_scale="auto"), r"noise_scale must be"),
    "noise scale an array": (
        lambda: orn.glm(X, Y, noise_scale=np.ones(40)),
        r"noise_scale must be",
    ),
    "a constant target": (lambda: orn.glm(X, np.ones(40)), r"y is constant"),
    "negative weights": (
        lambda: orn.glm(X, Y, weights=-np.ones(40)),
        r"weights must not be negative",
    ),
    "S zero": (
        lambda: orn.ConstantSGD().tune(curvature(), batch_size=0),
        r"between 1 and the number of rows, 40; got 0",
    ),
    "S above N": (
        lambda: orn.ConstantSGD().tune(curvature(), batch_size=41),
        r"between 1 and the number of rows, 40; got 41",
    ),
    "S above N in a Dynamics": (
        lambda: orn.Dynamics(0.1, 41).predict(curvature()),
        r"between 1 and the number of rows",
    ),
    "S zero in a Dynamics": (
        lambda: orn.Dynamics(0.1, 0),
        r"batch_size must be a whole number, 1 or more; got 0",
    ),
    "S fractional": (
        lambda: orn.ConstantSGD().tune(curvature(), batch_size=2.5),
        r"whole number, not 2.5",
    ),
    "S = N without noise": (
        lambda: orn.ConstantSGD().tune(curvature(), 40, "without-replacement"),
        r"no noise",
    ),
    "S = N in a Dynamics": (
        lambda: orn.Dynamics(0.1, 40, "slices").predict(curvature()),
        r"no noise",
    ),
    "reshuffled epochs": (lambda: orn.ConstantSGD().tune(curvature(), 4, "epochs"), r"refused"),
    "a preconditioner of another size": (
        lambda: orn.Dynamics(np.eye(2), 4).predict(curvature()),
        r"there are 4 parameters",
    ),
    "an indefinite preconditioner": (
        lambda: orn.Dynamics(np.diag([1.0, -1.0]), 4),
        r"positive definite; its smallest eigenvalue is -1, its largest 1\.",
    ),
    "an asymmetric preconditioner": (
        lambda: orn.Dynamics(np.array([[1.0, 0.5], [0.0, 1.0]]), 4),
        r"symmetric",
    ),
    "a negative injection": (
        lambda: orn.Dynamics(0.1, 4, injected=np.diag([1.0, -1.0])),
        r"negative eigenvalue",
    ),
    "damping zero": (
        lambda: orn.ConstantSGD(damping=0.0),
        r"damping must lie in \(0, 1\]; got 0.0",
    ),
    "damping above one": (
        lambda: orn.Dynamics(0.1, 4, damping=1.5),
        r"damping must lie in \(0, 1\]; got 1.5",
    ),
    "a step of zero": (
        lambda: orn.ConstantSGD(step_size=0.0),
        r"step_size must be positive and finite; got 0.0",
    ),
    "a step in words": (
        lambda: orn.ConstantSGD(step_size="large"),
        r"'auto', a number or an array",
    ),
    "unknown preconditioner": (lambda: orn.ConstantSGD("banded"), r"preconditioner must be one of"),
    "unknown tuning": (lambda: orn.ConstantSGD(tuning="guess"), r"tuning must be one of"),
    "unknown objective": (lambda: orn.ConstantSGD(objective="kl"), r"objective must be one of"),
    "unknown target": (lambda: orn.ConstantSGD(target="truth"), r"target must be one of"),
    "a sandwich in continuous time": (
        lambda: orn.ConstantSGD(target="sandwich", tuning="continuous"),
        r"needs tuning='discrete'",
    ),
    "control variates": (
        lambda: orn.ConstantSGD(control_variates=True),
        r"refuses control variates: its gradient noise",
    ),
    "a step beyond the bound": (
        lambda: orn.sample(
            orn.glm(X, Y, noise_scale=1.0),
            orn.ConstantSGD("scalar", 50.0),
            batch_size=4,
            progress=False,
        ),
        r"the step size 50 is beyond the stability bound \d",
    ),
    "a likelihood that returns a vector": (
        lambda: model(lambda t, x: -0.5 * (x - t) ** 2),
        (
            r"log_likelihood must return a scalar for one example; it returned an array of shape"
            r" \(3,\)"
        ),
    ),
    "a likelihood that returns a tuple": (lambda: model(lambda t, x: (t, t)), r"returned a tuple"),
    "a likelihood that fails": (
        lambda: model(lambda t, x: t["missing"]),
        r"log_likelihood fails on an example of the data",
    ),
    "a likelihood of one argument": (
        lambda: model(lambda t: t),
        r"log_likelihood must take 2 arguments",
    ),
    "a likelihood that is none": (lambda: model(3.0), r"log_likelihood must be a function"),
    "a prior that returns a vector": (
        lambda: model(log_prior=lambda t: jnp.ones(2) * t),
        r"log_prior must return a scalar",
    ),
    "no start": (lambda: orn.Model(lambda t, x: -(t**2), X), r"init is missing"),
    "a start that is not finite": (
        lambda: model(init=jnp.nan),
        r"init holds a value that is not finite",
    ),
    "a start in words": (lambda: model(init="zero"), r"not numeric"),
    "an empty start": (lambda: model(init={}), r"no parameters"),
    "no positive definite Hessian": (
        lambda: orn.measure(
            orn.Model(
                lambda t, x: -0.5 * (x[0] - t["a"] - t["b"]) ** 2,
                X,
                init={"a": jnp.zeros(()), "b": jnp.zeros(())},
            )
        ),
        r"not positive definite: .* in the direction [+-]0.71 a, [+-]0.71 b",
    ),
    "draws in words": (
        lambda: orn.sample(orn.glm(X, Y), draws="many"),
        r"draws must be a positive whole number",
    ),
    "no draws": (
        lambda: orn.sample(orn.glm(X, Y), draws=0),
        r"draws must be a positive whole number; got 0",
    ),
    "no chains": (
        lambda: orn.sample(orn.glm(X, Y), chains=0),
        r"chains must be a positive whole number; got 0",
    ),
    "a seed below zero": (
        lambda: orn.sample(orn.glm(X, Y), seed=-1),
        r"seed must be a whole number, 0 or more; got -1",
    ),
    "half precision": (
        lambda: orn.sample(orn.glm(X, Y), dtype="float16"),
        r"dtype must be 'float32' or 'float64'",
    ),
    "thin zero": (
        lambda: orn.sample(orn.glm(X, Y), thin=0),
        r"thin must be a positive whole number or 'auto'; got 0",
    ),
    "warmup below zero": (
        lambda: orn.sample(orn.glm(X, Y), warmup=-1),
        r"warmup must be a whole number, 0 or more",
    ),
    "keep nothing": (lambda: orn.sample(orn.glm(X, Y), keep="nothing"), r"keep must be"),
    "no sampler": (lambda: orn.sample(orn.glm(X, Y), "SGD"), r"sampler"),
    "no model": (lambda: orn.sample(X), r"model must be a Model"),
    "no model to measure": (lambda: orn.measure(X), r"model must be a Model"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_gets_a_sentence(name):
    build, words = REFUSED[name]
    with pytest.raises(orn.OrnsteinError, match=words) as caught:
        build()
    message = str(caught.value)
    assert "\n" not in message and len(message) < 400
    assert not message.startswith(("'", "(", "["))


def test_input_errors_are_value_errors_too():
    with pytest.raises(ValueError, match="unknown family"):
        orn.glm(X, Y, "gama-rays")
