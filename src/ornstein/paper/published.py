"""What the paper says: its numbers, its settings, and what is known about the places where they
disagree with the theory.
"""

from __future__ import annotations

# Table 1, KL divergences; the columns are in the order of the paper's table.
TABLE_1 = {
    "sgd": {"wine": 18.7, "skin": 0.471, "protein": 1000.9},
    "sgd-d": {"wine": 14.0, "skin": 0.921, "protein": 678.4},
    "sgd-f": {"wine": 0.7, "skin": 0.005, "protein": 1.8},
    "sgld": {"wine": 2.9, "skin": 0.905, "protein": 4.5},
    "sgfs-d": {"wine": 12.8, "skin": 0.864, "protein": 597.4},
    "sgfs-f": {"wine": 0.8, "skin": 0.005, "protein": 1.3},
    "bbvi": {"wine": 44.7, "skin": 5.74, "protein": 478.1},
}

DATASETS = ("wine", "skin", "protein")
BATCH_SIZES = {"wine": 100, "protein": 100, "skin": 10_000}
SGLD_RATES = {"wine": 1e-3, "protein": 1e-6, "skin": 1e-5}

# The synthetic linear regression of section 7.2.
SYNTHETIC_ROWS, SYNTHETIC_COLUMNS = 10_000, 10
IASG_PANEL = {"batch_size": 1, "step_size": 0.005, "window": 10_000}
IASG_CONVERGENCE = {"batch_size": 10, "step_size": 0.003, "window": 1000}
SGLD_CONVERGENCE = {"scale": 1e-3, "offset": 1000.0, "power": 0.5}
