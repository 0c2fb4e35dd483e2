"""What is refused where a Model is wanted."""

from __future__ import annotations

from ornstein.errors import InputError
from ornstein.model.model import Model


def require_model(model: object) -> None:
    """Refuse what is not a Model.

    >>> require_model("gaussian")
    Traceback (most recent call last):
    ornstein.errors.InputError: model must be a Model, for instance orn.glm(X, y); got a str
    """
    if not isinstance(model, Model):
        raise InputError(
            f"model must be a Model, for instance orn.glm(X, y); got a {type(model).__name__}"
        )
