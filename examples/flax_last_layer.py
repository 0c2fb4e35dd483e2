"""A Flax network on digits, trained as usual, then its last layer made Bayesian: a softmax regression on the network's features.

The features are fixed, so the posterior is that of a regression, near to Gaussian, and the full preconditioner applies.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from calibration import scores
from flax import nnx
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import ornstein as orn

PRIOR_PRECISION = 1.0


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(64, 16, rngs=rngs)
        self.last = nnx.Linear(16, 10, rngs=rngs)

    def features(self, pixels: jax.Array) -> jax.Array:
        return jnp.tanh(self.hidden(pixels))

    def __call__(self, pixels: jax.Array) -> jax.Array:
        return self.last(self.features(pixels))


pixels, labels = load_digits(return_X_y=True)
split = train_test_split(pixels.astype(np.float32) / 16.0, labels, test_size=0.3, random_state=0, stratify=labels)
x_train, x_test, y_train, y_test = split

network = Network(nnx.Rngs(0))
optimizer = nnx.Optimizer(network, optax.adam(0.01), wrt=nnx.Param)


@nnx.jit
def train_step(network: Network, optimizer: nnx.Optimizer) -> None:
    def loss(network: Network) -> jax.Array:
        fit = optax.softmax_cross_entropy_with_integer_labels(network(x_train), y_train).mean()
        size = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(nnx.state(network, nnx.Param)))
        return fit + 0.5 * PRIOR_PRECISION * size / len(y_train)

    optimizer.update(network, nnx.grad(loss)(network))


for _ in range(500):
    train_step(network, optimizer)
print("MAP network:         ", scores(np.asarray(jax.nn.softmax(network(x_test))), y_test))

model = orn.glm(np.asarray(network.features(x_train)), y_train, family="categorical", prior_precision=PRIOR_PRECISION)
post = orn.sample(model, draws=100, progress=False)
print("Bayesian last layer: ", scores(post.predict(np.asarray(network.features(x_test))).mean, y_test))
print(f"{model.dim} parameters, verdict: {post.check().level}")
