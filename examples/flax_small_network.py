"""All 280 weights of a small Flax network on digits, by steps with a diagonal preconditioner.

The posterior of a network is not Gaussian, so constant SGD, whose noise is the minibatch's alone,
is out of its depth: its steps are as large as a Gaussian posterior would allow, and the verdict
says that they are too large. Fisher scoring (SGFS) with the same diagonal, ten times smaller steps
and the missing noise injected moves far less. Over three splits its log loss is that of the MAP
network (0.272 ± 0.014 against 0.272 ± 0.016), its calibration error is larger on average (0.065
against 0.032), and constant SGD is worse in both (0.373 and 0.132). The verdict trusts neither:
what they share with the posterior is for predictions to show.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from calibration import measures, over_splits
from flax import nnx
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import ornstein as orn

SPLITS = 3
pixels, labels = load_digits(return_X_y=True)
blocks = pixels.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)  # 4 × 4 pixels
blocks = ((blocks - blocks.mean(axis=0)) / blocks.std()).astype(np.float32)


def network(seed: int) -> nnx.Module:
    rngs = nnx.Rngs(seed)
    return nnx.Sequential(nnx.Linear(16, 10, rngs=rngs), jnp.tanh, nnx.Linear(10, 10, rngs=rngs))


graph, _ = nnx.split(network(0), nnx.Param)


def logits(weights, x):
    return nnx.merge(graph, weights)(x)


def log_likelihood(weights, example):
    return jax.nn.log_softmax(logits(weights, example["x"]))[example["y"]]


def log_prior(weights):
    return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(weights))


def predict(weights, x):
    return jax.nn.softmax(logits(weights, x))


@jax.jit
def trained(weights, x, y):
    """Adam on the loss whose minimum is the posterior's mode."""
    optimizer = optax.adam(optax.cosine_decay_schedule(0.01, 2000))

    def loss(weights):
        fit = optax.softmax_cross_entropy_with_integer_labels(logits(weights, x), y).mean()
        return fit - log_prior(weights) / len(y)

    def step(carry, _):
        weights, state = carry
        updates, state = optimizer.update(jax.grad(loss)(weights), state)
        return (optax.apply_updates(weights, updates), state), None

    return jax.lax.scan(step, (weights, optimizer.init(weights)), length=2000)[0][0]


def compared(seed: int) -> dict[str, np.ndarray]:
    """Measures on new images of the network at the mode and of both averages, from one split and
    one start.
    """
    x_train, x_test, y_train, y_test = train_test_split(
        blocks, labels, test_size=0.3, random_state=seed, stratify=labels
    )
    mode = trained(nnx.split(network(seed), nnx.Param)[1], x_train, y_train)
    found = {"MAP network": measures(np.asarray(predict(mode, x_test)), y_test)}
    model = orn.Model(
        log_likelihood, {"x": x_train, "y": y_train}, log_prior, init=mode, predict=predict
    )
    curvature = orn.measure(model, structure="diagonal", mode=model.init)
    noise = 10.0 * np.sqrt(curvature.hessian / model.n_data)
    samplers = {
        "constant SGD": orn.ConstantSGD("diagonal"),
        "SGFS": orn.SGFS("diagonal", step_size=1.0, injected=noise),
    }
    options = {
        "batch_size": 16,
        "draws": 100,
        "chains": 2,
        "thin": 200,
        "warmup": 5000,
        "seed": seed,
        "progress": False,
    }
    for name, sampler in samplers.items():
        post = orn.sample(model, sampler, curvature=curvature, **options)
        shift = np.sqrt(np.mean((post.draws - curvature.mode) ** 2))
        print(f"split {seed}, {name}: weights move by {shift:.2f}, verdict: {post.check().level}")
        found[name] = measures(post.predict(x_test).mean, y_test)
    return found


runs = [compared(seed) for seed in range(SPLITS)]
print(f"mean ± sd over {SPLITS} splits")
for name in runs[0]:
    print(f"  {name + ':':15s}", over_splits([run[name] for run in runs]))
print("less the MAP network, split by split")
for name in ("constant SGD", "SGFS"):
    print(
        f"  {name + ':':15s}", over_splits([run[name] - run["MAP network"] for run in runs], "+.3f")
    )
