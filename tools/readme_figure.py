"""Draw the README's picture from a real fit: what theory predicts, what the chain did, the verdict.

    python tools/readme_figure.py

writes docs/overview-light.svg and docs/overview-dark.svg. The data are scikit-learn's (diabetes).
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

import ornstein as orn

DOCS = Path(__file__).parents[1] / "docs"
THEMES = {
    "light": {"text": "#1b1f24", "quiet": "#57606a", "draws": "#3b5bdb", "good": "#1a7f37"},
    "dark": {"text": "#e6edf3", "quiet": "#9198a1", "draws": "#8fa8ff", "good": "#6fdd8b"},
}
PAIR = ("s1", "s2")  # two serum values that are correlated
FORMS = {"scalar": "one rate for all parameters", "full": "the full preconditioner"}


def fits() -> tuple[orn.Curvature, dict[str, orn.Posterior]]:
    """The same regression by constant SGD with one rate and with a whole matrix."""
    data = load_diabetes(as_frame=True)
    columns = data.data / data.data.std()
    model = orn.glm(columns, data.target / data.target.std(), noise_scale=0.7)
    curvature = orn.measure(model)
    return curvature, {
        form: orn.sample(
            model, orn.ConstantSGD(form), curvature=curvature, draws=500, progress=False
        )
        for form in FORMS
    }


def ellipse(covariance: np.ndarray) -> np.ndarray:
    """Two standard deviations, as points (2, n)."""
    angles = np.linspace(0.0, 2.0 * np.pi, 200)
    return 2.0 * np.linalg.cholesky(covariance) @ np.stack([np.cos(angles), np.sin(angles)])


def drawn(theme: dict[str, str], curvature: orn.Curvature, posts: dict[str, orn.Posterior]) -> None:
    """Two panels with the verdict below each."""
    first = next(iter(posts.values()))
    places = [first.names.index(name) for name in PAIR]
    centre = curvature.mode[places]
    _, panels = plt.subplots(1, 2, figsize=(9.0, 4.6), layout="constrained", sharey=True)
    for axes, (form, post) in zip(panels, posts.items(), strict=True):
        part = np.ix_(places, places)
        flat = post.draws.reshape(-1, post.draws.shape[-1])[::6, places] - centre
        axes.plot(*flat.T, ".", color=theme["draws"], markersize=2.5, alpha=0.35, label="draws")
        predicted = ellipse(np.asarray(post.prediction.covariance)[part])
        axes.plot(*predicted, color=theme["draws"], linewidth=2.0, label="predicted by theory")
        target = ellipse(curvature.laplace.covariance[part])
        axes.plot(*target, "--", color=theme["text"], linewidth=1.6, label="the posterior")
        axes.set_title(f"SGD, {FORMS[form]}", color=theme["text"], fontsize=11, loc="left")
        verdict = post.check()
        colour = theme["good"] if verdict.level == "trusted" else theme["text"]
        axes.set_xlabel(f"Verdict: {verdict.level}", color=colour, fontsize=11, fontweight="bold")
        sentence = textwrap.fill(str(verdict).splitlines()[0].split(". ", 1)[1], 90)
        axes.text(
            0.5, -0.1, sentence, transform=axes.transAxes, ha="center", va="top",
            fontsize=8.5, color=theme["quiet"],
        )  # fmt: skip
        axes.set(xticks=[], yticks=[])
        for side in axes.spines.values():
            side.set_color(theme["quiet"])
    panels[0].legend(frameon=False, labelcolor=theme["text"], fontsize=8.5, loc="upper right")


def main() -> None:
    """Fit once, draw for both themes."""
    curvature, posts = fits()
    plt.rcParams["svg.hashsalt"] = "ornstein"
    for name, theme in THEMES.items():
        drawn(theme, curvature, posts)
        path = DOCS / f"overview-{name}.svg"
        plt.savefig(path, transparent=True, metadata={"Date": None})
        plt.close()
        print(path)


if __name__ == "__main__":
    main()
