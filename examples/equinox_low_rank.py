"""An Equinox network on few digits, trained as usual and so too sure of itself; its last layer then gets a posterior.

The layer is summed up in three ways: draws of full and of diagonal steps, and the low-rank Gaussian that diagonal steps are
gathered in (`orn.low_rank`, as in SWAG but from steps that are tuned and not guessed). With 300 images and 89 parameters the
posterior is no Gaussian, and the verdict says so. The draws have a better log loss than the trained network, but the mode under
the same prior has a better one still, and the averages are too modest, the low-rank Gaussian's most of all.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from calibration import scores
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import ornstein as orn

PRIOR_PRECISION = 1.0
pixels, labels = load_digits(return_X_y=True)
split = train_test_split(pixels.astype(np.float32) / 16.0, labels, train_size=300, random_state=0, stratify=labels)
x_train, x_test, y_train, y_test = split

network = eqx.nn.MLP(64, 10, width_size=8, depth=1, activation=jnp.tanh, key=jax.random.key(0))
weights, static = eqx.partition(network, eqx.is_inexact_array)


@jax.jit
def trained(weights):
    """Adam on the cross-entropy alone."""
    optimizer = optax.adam(0.01)

    def loss(weights):
        logits = jax.vmap(eqx.combine(weights, static))(x_train)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y_train).mean()

    def step(carry, _):
        weights, state = carry
        updates, state = optimizer.update(jax.grad(loss)(weights), state)
        return (optax.apply_updates(weights, updates), state), None

    return jax.lax.scan(step, (weights, optimizer.init(weights)), length=2000)[0][0]


network = eqx.combine(trained(weights), static)
print("trained network:     ", scores(np.asarray(jax.nn.softmax(jax.vmap(network)(x_test))), y_test))


def features(x: np.ndarray) -> np.ndarray:
    return np.asarray(jnp.tanh(jax.vmap(network.layers[0])(x)))


model = orn.glm(features(x_train), y_train, family="categorical", prior_precision=PRIOR_PRECISION)
curvature = orn.measure(model)
at_mode = model.predict(model.layout.unflatten(curvature.mode), features(x_test))
print("MAP last layer:      ", scores(np.asarray(at_mode), y_test))

samplers = {"full steps:          ": orn.SGFS("full"), "diagonal steps:      ": orn.ConstantSGD("diagonal")}
for name, sampler in samplers.items():
    post = orn.sample(model, sampler, curvature=curvature, draws=100, max_steps=400_000, progress=False)
    print(name, scores(post.predict(features(x_test)).mean, y_test), f"  verdict: {post.check().level}")
gaussian = orn.low_rank(model, rank=10, curvature=curvature, max_steps=400_000, progress=False)
print("low-rank Gaussian:   ", scores(gaussian.predict(features(x_test)).mean, y_test))
