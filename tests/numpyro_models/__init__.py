"""53 NumPyro models as their users write them: the public examples and tutorials of NumPyro, and
styles of writing. Data that would have to be downloaded are simulated, small, with fixed seeds.

`MODELS` holds a Case for each name; `build()` gives the model function with its arguments.
"""

from numpyro_models import hierarchies, mixtures, regressions, sequences, styles  # noqa: F401
from numpyro_models.catalogue import MODELS, Case

__all__ = ["MODELS", "Case"]
