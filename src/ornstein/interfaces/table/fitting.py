"""A fit with its table: what travels in its file, and what is shown of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ornstein.errors import FileError
from ornstein.interfaces.table.earlier import is_earlier, modernised
from ornstein.model.parameters import Layout
from ornstein.posterior.posterior import Posterior
from ornstein.regression.mixed import MixedTablePredict
from ornstein.regression.regress import TablePredict
from ornstein.types import Array

if TYPE_CHECKING:
    from ornstein.regression.regress import Request
    from ornstein.regression.spec import Spec


def described(posterior: Posterior, source: str, request: Request, rows: int) -> Posterior:
    """The posterior with where it came from."""
    said: dict[str, object] = {"source": source, "rows": rows}
    if request.prior_precision is not None:
        said["prior_precision"] = request.prior_precision
    return replace(posterior, settings={**posterior.settings, **said})


def from_table(posterior: Posterior, path: str = "this posterior") -> tuple[Posterior, Spec]:
    """The posterior in the units of its table, and what it knows of it; fits of earlier versions
    are brought there.
    """
    if is_earlier(posterior):
        posterior = modernised(posterior)
    if not isinstance(posterior.predict_function, TablePredict | MixedTablePredict):
        raise FileError(
            f"{path} was not made from a table by `ornstein fit` or `orn.fit`: it does not say what"
            " its columns were"
        )
    return posterior, posterior.predict_function.spec


def shown(posterior: Posterior) -> Posterior:
    """The draws as people read them: σ in place of log σ, and classes relative to the first one.

    A softmax does not change when all logits move together, and only the prior says where they
    are: differences between classes are what the data tell.
    """
    if isinstance(posterior.predict_function, MixedTablePredict):
        return posterior  # on the scale of the table already
    assert isinstance(posterior.predict_function, TablePredict)
    likelihood, spec = posterior.predict_function.likelihood, posterior.predict_function.spec
    params: dict[str, Array] = dict(posterior.params)
    others = [""]
    if likelihood.law.classes:
        others = [f"[{label}]" for label in spec.classes[1:]]
        for name in ("coef", "intercept"):
            if name in params and params[name].shape[-1] == len(spec.classes):
                params[name] = params[name][..., 1:] - params[name][..., :1]
    words = []
    for auxiliary in likelihood.auxiliaries:
        params[auxiliary.word] = auxiliary.natural(params.pop(auxiliary.name))
        words.append(auxiliary.word)
    names = {
        "coef": [f"{name}{other}" for name in spec.feature_names for other in others],
        "intercept": [f"intercept{other}" for other in others],
        **{word: [word] for word in words},
    }
    layout = Layout.of({name: values[0, 0] for name, values in params.items()})
    lead = posterior.draws.shape[:2]
    draws = np.concatenate([params[path].reshape(*lead, -1) for path in layout.paths], axis=2)
    listed = tuple(name for path in layout.paths for name in names[path])
    return Posterior(draws, listed, layout, {**posterior.settings, "scale": "original"})
