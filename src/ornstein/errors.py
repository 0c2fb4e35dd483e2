"""Every error and warning that ornstein raises, so that a caller can name what it wants to
handle.
"""


class OrnsteinError(Exception):
    """Base of all errors raised on purpose."""


class InputError(OrnsteinError, ValueError):
    """A value handed in is refused; the sentence names the value and the bound."""


class StabilityError(OrnsteinError):
    """The step is beyond the bound at which the recursion has a stationary law."""


class CurvatureError(OrnsteinError):
    """The local picture at the mode cannot be used: no mode, no curvature, or no noise in some
    direction.
    """


class ModeError(CurvatureError):
    """The search found no mode at which the loss is smooth, so that there is no local picture.

    `kind` tells why: "no-maximum" (the density grows without bound), "kink" (a maximum without
    second derivatives) or "not finite". NUTS needs no mode; a posterior without a maximum may still
    be proper, as where a variance tends to zero. `place` is the flat vector the search had reached.
    """

    def __init__(self, message: str, *, kind: str, place: object = None) -> None:
        super().__init__(message)
        self.kind, self.place = kind, place


class DivergenceError(OrnsteinError):
    """A chain reached non-finite values; carries the chain, the step and the last finite parameters
    as a flat vector.
    """

    def __init__(self, message: str, *, chain: int, step: int, last_finite: object) -> None:
        super().__init__(message)
        self.chain, self.step, self.last_finite = chain, step, last_finite


class WayError(OrnsteinError):
    """A way to the posterior cannot be taken after all; the sentence says which other one may.

    Attributes:
        passes: over the data, that were taken before that was known.
    """

    def __init__(self, message: str, passes: float = 0.0) -> None:
        super().__init__(message)
        self.passes = passes


class ClusterError(OrnsteinError):
    """A cluster was lost while a run was on it."""


class NetworkError(OrnsteinError):
    """A network as a whole: no way is chosen for it; the sentence says what to do instead."""


class FileError(OrnsteinError):
    """A saved file cannot be read, or is not one of ours."""


class OrnsteinWarning(UserWarning):
    """Base of all warnings."""


class BudgetWarning(OrnsteinWarning):
    """The step budget does not allow the thinning or length that theory asks for."""


class StationarityWarning(OrnsteinWarning):
    """Warm-up ended before the stationarity test was content."""


class ApproximationWarning(OrnsteinWarning):
    """A quantity is an approximation where an exact one was out of reach."""


class ConvergenceWarning(OrnsteinWarning):
    """A baseline ended before its own test was content: an optimisation not at its optimum, or
    divergent transitions.
    """


class WindowWarning(OrnsteinWarning):
    """A window of iterates is too short for its mean to be an independent draw of the right
    width.
    """


class CheckpointWarning(OrnsteinWarning):
    """A checkpoint could not be written, or the newest one could not be read and the one before is
    used.
    """


class PredictionWarning(OrnsteinWarning):
    """Some rows cannot be predicted and come back empty."""


class TrustWarning(OrnsteinWarning):
    """A verdict that is not *trusted*; raised by `Verdict.warn`."""


class HyperparameterWarning(OrnsteinWarning):
    """A hyperparameter has no finite best value: the evidence rises all the way to infinity or to
    zero.
    """
