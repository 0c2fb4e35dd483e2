"""The theory as functions: pure NumPy and SciPy in float64, usable without running anything.

Where is what: `stationary_covariance` (one Lyapunov equation for all samplers), `theorem_1_rate`,
`theorem_2_preconditioner`, `diagonal_corollary`, `square_root_rate`, `reverse_kl_rate` (the
paper's), `exact_preconditioner`, `exact_rate`, `exact_diagonal`, `sandwich_preconditioner`,
`noise_taken_up`, `matched_injection`, `injection_bound` (discrete time), `window_covariance`,
`transport_map` (averages), `kl`, `monte_carlo_floor`.
"""

from ornstein.theory.averaging import sandwich_covariance, transport_map, window_covariance
from ornstein.theory.divergence import (
    Gaussian,
    covariance_standard_error,
    kl,
    kl_covariance,
    monte_carlo_floor,
)
from ornstein.theory.modes import Modes, normal_modes
from ornstein.theory.rates import (
    diagonal_corollary,
    exact_diagonal,
    exact_preconditioner,
    exact_rate,
    injection_bound,
    largest_rate_within,
    matched_injection,
    noise_taken_up,
    reverse_kl_rate,
    sandwich_preconditioner,
    square_root_rate,
    square_root_shape,
    theorem_1_rate,
    theorem_2_preconditioner,
)
from ornstein.theory.stationary import (
    Process,
    mean_square_bound,
    solve_modes_responding,
    stationary_covariance,
)

__all__ = [
    "Gaussian",
    "Modes",
    "Process",
    "covariance_standard_error",
    "diagonal_corollary",
    "exact_diagonal",
    "exact_preconditioner",
    "exact_rate",
    "injection_bound",
    "kl",
    "kl_covariance",
    "largest_rate_within",
    "matched_injection",
    "mean_square_bound",
    "monte_carlo_floor",
    "noise_taken_up",
    "normal_modes",
    "reverse_kl_rate",
    "sandwich_covariance",
    "sandwich_preconditioner",
    "solve_modes_responding",
    "square_root_rate",
    "square_root_shape",
    "stationary_covariance",
    "theorem_1_rate",
    "theorem_2_preconditioner",
    "transport_map",
    "window_covariance",
]
