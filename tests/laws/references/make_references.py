"""Make nuts.npz: mean and covariance of 40,000 NUTS draws for every problem that is not Gaussian.

Run it from the folder tests: python references/make_references.py. The file also holds the smallest
ESS and the largest R-hat, so that a reader can see how good the reference is. A few minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from verdict_problems import REFERENCE_MODELS, REFERENCES

from ornstein.baselines.nuts import nuts
from ornstein.posterior.statistics import effective_sample_size, split_r_hat


def main() -> None:
    stored: dict[str, np.ndarray] = {}
    for name, build in REFERENCE_MODELS.items():
        post = nuts(
            build(), draws=10_000, chains=4, warmup=2000, dense_mass=True, target_accept=0.9, seed=1
        )
        sizes = [
            effective_sample_size(post.draws[:, :, place], "bulk")
            for place in range(post.draws.shape[2])
        ]
        r_hats = [split_r_hat(post.draws[:, :, place]) for place in range(post.draws.shape[2])]
        stored[f"{name}/mean"], stored[f"{name}/covariance"] = post.mean, post.covariance
        stored[f"{name}/quality"] = np.array([min(sizes), max(r_hats)])
        print(
            f"{name}: ESS {min(sizes):.0f}, R-hat {max(r_hats):.4f}, {post.settings['divergences']}"
            " divergences"
        )
    np.savez(REFERENCES, **stored)


if __name__ == "__main__":
    main()
