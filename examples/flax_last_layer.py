"""The last layer of a Flax network, made Bayesian: honest probabilities for the price of seconds.

A perceptron learns digits from 600 images, as usual and without a penalty. It is then too sure of
itself, above all of images that are no upright digits. `orn.from_flax` keeps the network and draws
from the posterior of its last layer; 300 images that it has not seen choose one temperature. Beside
it: the network as it is, and plain temperature scaling.
"""

from __future__ import annotations

import jax
import numpy as np
import optax
from calibration import scores
from flax import nnx
from scipy.special import softmax
from sklearn.datasets import load_digits

import ornstein as orn

TRAINING, HELD_OUT, STEPS = 600, 300, 2000
images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(labels))
pixels, labels = (images[order] / 16.0).astype(np.float32), labels[order]
train, held_out, test = np.split(np.arange(len(labels)), [TRAINING, TRAINING + HELD_OUT])


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(64, 64, rngs=rngs)
        self.second = nnx.Linear(64, 32, rngs=rngs)
        self.last = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.last(jax.nn.relu(self.second(jax.nn.relu(self.first(x)))))


@nnx.jit
def train_step(network: Network, optimizer: nnx.Optimizer, x: jax.Array, y: jax.Array) -> None:
    def loss(network: Network) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(network(x), y).mean()

    optimizer.update(network, nnx.grad(loss)(network))


network = Network(nnx.Rngs(0))
optimizer = nnx.Optimizer(network, optax.adam(1e-3), wrt=nnx.Param)
generator = np.random.default_rng(1)
for _ in range(STEPS):
    batch = generator.choice(train, 50, replace=False)
    train_step(network, optimizer, pixels[batch], labels[batch])

post = orn.from_flax(
    network,
    (pixels[train], labels[train]),
    layer="last",
    held_out=(pixels[held_out], labels[held_out]),
    progress=False,
)
print(post)
print(f"prior precision {post.settings['prior_precision']:.3g}, by {post.settings['way']}")
print("verdict:", post.check().level)

logits = np.asarray(network(pixels[test]), dtype=float)
scaling = post.calibration["temperature scaling"].temperature
turned = np.rot90(pixels[test].reshape(-1, 8, 8), axes=(1, 2)).reshape(-1, 64)
far = np.asarray(network(turned), dtype=float)
found = {
    "trained network": (softmax(logits, axis=1), softmax(far, axis=1)),
    "temperature scaling": (softmax(logits / scaling, axis=1), softmax(far / scaling, axis=1)),
    "last layer": (post.predict(pixels[test]).mean, post.predict(turned).mean),
}
print("on new images, and how sure of the same images turned by a quarter")
for name, (usual, strange) in found.items():
    sure = np.mean(strange.max(axis=1))
    print(f"  {name + ':':22s}{scores(usual, labels[test])}   turned {sure:.3f}")
