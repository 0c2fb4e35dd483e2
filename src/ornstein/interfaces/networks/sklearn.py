"""The last layer of scikit-learn's multilayer perceptrons, alone or at the end of a Pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, Unpack

import numpy as np
import scipy.special
from numpy.typing import ArrayLike

from ornstein.errors import InputError
from ornstein.interfaces.networks.last_layer import Options, fitted
from ornstein.interfaces.networks.reading import is_last, not_last, running
from ornstein.model import tables
from ornstein.posterior.last_layer import LastLayerPosterior
from ornstein.types import Array, PyTree

Estimator: TypeAlias = PyTree  # an MLP of scikit-learn, or a Pipeline that ends in one

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda values: values,
    "logistic": scipy.special.expit,
    "tanh": np.tanh,
    "relu": lambda values: np.maximum(values, 0.0),
}


def from_sklearn(
    net: Estimator,
    X: ArrayLike,
    y: ArrayLike,
    held_out: tuple[ArrayLike, ArrayLike] | None = None,
    **options: Unpack[Options],
) -> LastLayerPosterior:
    """The posterior of the last layer of a fitted MLPClassifier or MLPRegressor, alone or at the
    end of a Pipeline.

    Args:
        net: the fitted estimator, which is not changed.
        X, y: the training rows.
        held_out: X and y of rows that the network has not seen; they choose the temperature.
        options: those of `orn.last_layer` by name: prior_precision, draws, chains, seed, budget,
            deadline, progress.

    `post.predict(X)` takes the estimator's own inputs, and runs it.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.neural_network import MLPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> net = MLPClassifier((5,), max_iter=5000, random_state=0).fit(X, y)
    >>> post = from_sklearn(net, X, y, draws=100, progress=False)
    >>> post.predict(X[:2]).mean.round(1)
    array([[1., 0., 0.],
           [1., 0., 0.]])
    """
    network = SklearnNetwork.of(net)
    tables.require_one_index((("X", X), ("y", y)))
    held = None
    if held_out is not None:
        if not isinstance(held_out, tuple) or len(held_out) != 2:
            raise InputError("held_out must be a pair (X, y)")
        tables.require_one_index((("the X held out", held_out[0]), ("its y", held_out[1])))
        held = network.features(held_out[0]), held_out[1]
    task = "regression" if network.classes is None else "classification"
    features = network.features(X)
    return fitted(features, y, held, task, network.head(), network, options, network.classes)


@dataclass(frozen=True, eq=False)
class SklearnNetwork:
    """A fitted perceptron behind the transformations before it."""

    net: Estimator
    mlp: Estimator
    classes: Array | None

    framework: ClassVar[str] = "sklearn"
    layer: ClassVar[str] = "coefs_[-1]"

    @classmethod
    def of(cls, net: Estimator) -> SklearnNetwork:
        """Refused where it is another estimator, or not fitted, or has several targets."""
        from sklearn.neural_network import MLPClassifier, MLPRegressor
        from sklearn.pipeline import Pipeline
        from sklearn.utils.validation import check_is_fitted

        mlp = net.steps[-1][1] if isinstance(net, Pipeline) else net
        if not isinstance(mlp, MLPClassifier | MLPRegressor):
            raise InputError(
                "net must be an MLPClassifier or MLPRegressor, or a Pipeline that ends in one; got"
                f" a {type(mlp).__name__}"
            )
        try:
            check_is_fitted(mlp)
        except Exception as error:
            raise InputError("net is not fitted: call its fit first") from error
        if isinstance(mlp, MLPRegressor):
            return cls(net, mlp, None)
        if mlp.out_activation_ == "logistic" and mlp.n_outputs_ > 1:
            raise InputError("several labels per row are not supported: give one label per row")
        return cls(net, mlp, np.asarray(mlp.classes_))

    def head(self) -> tuple[Array, Array]:
        return np.array(self.mlp.coefs_[-1], float), np.array(self.mlp.intercepts_[-1], float)

    def features(self, inputs: PyTree) -> Array:
        tables.require_unmasked(inputs, "X")
        with running():
            return self._run(inputs)

    def _run(self, inputs: PyTree) -> Array:
        alone = self.net is self.mlp or len(self.net.steps) == 1
        before = inputs if alone else self.net[:-1].transform(inputs)
        given = np.asarray(before.toarray() if tables.is_sparse(before) else before, dtype=float)
        activation = ACTIVATIONS[self.mlp.activation]
        values = given
        hidden = zip(self.mlp.coefs_[:-1], self.mlp.intercepts_[:-1], strict=True)
        for weights, biases in hidden:
            values = activation(values @ weights + biases)
        returned = (
            self.mlp.predict(before) if self.classes is None else self.mlp.predict_proba(before)
        )
        outputs = np.asarray(returned, dtype=float)
        if self.classes is not None and self.mlp.n_outputs_ == 1:
            outputs = outputs[:, 1]
        if not is_last(values, self.head(), outputs):
            raise not_last(self.layer)
        return values
