"""The comparison table against numbers worked out by hand, its choice of reference, and the
pictures.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from helpers import kl_by_definition, regression_data, spd

import ornstein as orn
from ornstein.posterior import plots
from ornstein.theory import Gaussian


@pytest.fixture(scope="module")
def model():
    features, target = regression_data(400, 3, 0)
    return orn.glm(features, target, noise_scale=1.0, intercept=False, prior_precision=1.0)


@pytest.fixture(scope="module")
def posteriors(model):
    return {
        "laplace": orn.laplace(model, draws=500),
        "full": orn.sample(model, orn.ConstantSGD("full"), draws=500, progress=False),
        "scalar": orn.sample(model, orn.ConstantSGD("scalar"), draws=200, progress=False),
    }


def test_table_by_hand():
    rng = np.random.default_rng(0)
    truth = Gaussian(np.zeros(3), spd(rng, 3))
    unit = truth.standard_deviation
    law = Gaussian(
        np.array([0.0, -0.5, 0.1]) * unit,
        truth.covariance * np.multiply.outer([1.0, 1.0, 0.5], [1.0, 1.0, 0.5]),
    )
    row = orn.compare({"it": law, "same": truth}, reference=truth).to_frame().loc["it"]
    shift = law.mean @ np.linalg.solve(truth.covariance, law.mean) / 2.0
    back = law.mean @ np.linalg.solve(law.covariance, law.mean) / 2.0
    assert row.kl_qp == pytest.approx(kl_by_definition(law.covariance, truth.covariance) + shift)
    assert row.kl_pq == pytest.approx(kl_by_definition(truth.covariance, law.covariance) + back)
    assert (row.sd_ratio, row.sd_ratio_at) == (pytest.approx(0.5), "theta[2]")
    assert (row.mean_shift, row.mean_shift_at) == (pytest.approx(-0.5), "theta[1]")
    assert row.mcse == 0.0 and row.kl_floor == 0.0 and np.isinf(row.ess) and np.isnan(row.seconds)


def test_costs(posteriors, model):
    frame = orn.compare(posteriors).to_frame()
    settings = posteriors["full"].settings
    row = frame.loc["full"]
    assert row.passes == pytest.approx(settings["steps"] * settings["batch_size"] / model.n_data)
    assert row.seconds == settings["seconds"] and row.ess_per_second == pytest.approx(
        row.ess / row.seconds
    )
    summary = posteriors["full"].summary()
    assert row.ess == pytest.approx(summary["ess_bulk"].min())
    unit = posteriors["laplace"].sd
    assert row.mcse == pytest.approx(
        (posteriors["full"].sd / unit / np.sqrt(summary["ess_bulk"])).max()
    )
    assert frame.loc["laplace", "passes"] == posteriors["laplace"].settings["passes"]


def test_floor_tells_chance_from_bias(posteriors):
    """Tuned in full, the KL is what chance leaves (its mean is the floor, its spread below it); a
    scalar rate is far off.
    """
    frame = orn.compare(posteriors).to_frame()
    assert frame.loc["laplace", "kl_floor"] == 0.0
    full, scalar = frame.loc["full"], frame.loc["scalar"]
    # 2n·KL is χ² with 9 degrees of freedom, whose 1 − 10⁻⁴ quantile is 33.7: 3.8 times its mean.
    assert max(full.kl_qp, full.kl_pq) < 4.0 * full.kl_floor
    assert min(scalar.kl_qp, scalar.kl_pq) > 4.0 * scalar.kl_floor


def test_reference_is_chosen(posteriors):
    assert orn.compare(posteriors).reference_name == "laplace"
    assert orn.compare(posteriors, reference="full").reference_name == "full"
    assert orn.compare(posteriors, reference=posteriors["full"]).reference_name == "full"
    others = {name: posterior for name, posterior in posteriors.items() if name != "laplace"}
    by_mode = orn.compare(others)
    assert by_mode.reference_name == "Laplace at the mode"
    np.testing.assert_array_equal(by_mode.reference.covariance, posteriors["laplace"].covariance)
    renamed = orn.compare({"a": posteriors["full"], "b": posteriors["laplace"]})
    assert renamed.reference_name == "b"
    outside = orn.compare(others, reference=posteriors["laplace"])
    assert outside.reference_name == "the reference"
    law = Gaussian(np.zeros(1), np.eye(1))
    assert orn.compare({"nuts": law, "other": law}).reference_name == "nuts"


def test_refusals(posteriors):
    law = Gaussian(np.zeros(2), np.eye(2))
    with pytest.raises(orn.InputError, match="nothing to compare"):
        orn.compare({})
    with pytest.raises(
        orn.InputError, match="the reference 'nuts' is not among 'laplace', 'full', 'scalar'"
    ):
        orn.compare(posteriors, reference="nuts")
    with pytest.raises(orn.InputError, match="no reference"):
        orn.compare({"a": law})
    with pytest.raises(
        orn.InputError, match="reference must be a name, a Posterior or a Gaussian, not a int"
    ):
        orn.compare({"a": law}, reference=3)
    with pytest.raises(orn.InputError, match="a has 2 parameters where the reference has 3"):
        orn.compare({"a": law, **posteriors}, reference="full")
    with pytest.raises(orn.InputError, match="a must be a Posterior or a Gaussian, not a str"):
        orn.compare({"a": "x"}, reference=law)


def test_other_models_are_refused(posteriors):
    features, target = regression_data(50, 3, 1)
    other = orn.laplace(orn.glm(features[:, :2], target, noise_scale=1.0, prior_precision=1.0))
    with pytest.raises(orn.InputError, match="from different models"):
        orn.compare({**posteriors, "other": other})


def test_large_dimension_says_diagonal():
    size = 2500
    law = Gaussian(np.zeros(size), np.full(size, 2.0))
    comparison = orn.compare({"wide": law}, reference=Gaussian(np.zeros(size), np.ones(size)))
    assert comparison.rows[0].kl_qp == pytest.approx(size * 0.5 * (2.0 - 1.0 - np.log(2.0)))
    assert "both KL are between the diagonals" in str(comparison)


def test_a_diagonal_covariance_is_a_matrix_of_moderate_size():
    """A law known to be independent is compared as such with a correlated reference, not on the
    diagonal alone.
    """
    truth = np.array([[1.0, 0.9], [0.9, 1.0]])
    row = orn.compare(
        {"it": Gaussian(np.zeros(2), np.ones(2))}, reference=Gaussian(np.zeros(2), truth)
    ).rows[0]
    assert row.kl_qp == pytest.approx(kl_by_definition(np.eye(2), truth)) and row.kl_qp > 1.0


def test_moments_alone_can_be_compared(model, posteriors):
    moments = orn.sample(model, orn.ConstantSGD("full"), draws=500, keep="moments", progress=False)
    row = orn.compare({"moments": moments, **posteriors}).rows[0]
    assert row.kl_qp == pytest.approx(orn.compare(posteriors).to_frame().loc["full", "kl_qp"])
    # States between the draws count: more effective draws than there are draws two relaxation times
    # apart, 0.76 each.
    assert row.ess > 0.76 * 2000


def test_printed(posteriors):
    text = str(orn.compare(posteriors))
    lines = text.splitlines()
    assert lines[0] == "Against laplace"
    for heading in (
        "KL(it ‖ ref)",
        "KL(ref ‖ it)",
        "MC floor",
        "worst sd ratio",
        "MCSE",
        "ESS/s",
        "passes",
    ):
        assert heading in lines[1]
    assert [line.split()[0] for line in lines[2:5]] == ["laplace", "full", "scalar"]
    assert "(x" in lines[4] and "nan" not in text


def test_convergence_is_noted(model):
    with pytest.warns(orn.ConvergenceWarning):
        posterior = orn.bbvi(model, max_steps=10)
    text = str(orn.compare({"bbvi": posterior, "laplace": orn.laplace(model)}))
    assert "bbvi: not converged: the ELBO is" in text


# Pictures


def test_overlay(posteriors, tmp_path):
    path = tmp_path / "overlay.png"
    figure = orn.compare(posteriors).plot(path)
    assert path.stat().st_size > 10_000
    left, right = figure.axes
    labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert labels == ["laplace (reference)", "full", "scalar"]
    assert left.get_xlabel().startswith("largest component") and left.get_ylabel().startswith(
        "smallest component"
    )
    assert [tick.get_text() for tick in right.get_yticklabels()] == ["x0", "x1", "x2"]


def test_ellipses_are_where_they_belong():
    """The reference is a circle of radius √χ²; a law twice as wide along the largest component
    reaches twice as far there.
    """
    truth = Gaussian(np.zeros(2), np.diag([4.0, 1.0]))
    wide = Gaussian(np.array([2.0, 0.0]), np.diag([16.0, 1.0]))
    figure = orn.compare({"wide": wide}, reference=truth).plot()
    curves = [line.get_xydata() for line in figure.axes[0].lines if len(line.get_xydata()) > 10]
    circle, ellipse = curves
    np.testing.assert_allclose(np.linalg.norm(circle, axis=1), plots.RADIUS_95)
    assert np.abs(ellipse[:, 0] - 1.0).max() == pytest.approx(2.0 * plots.RADIUS_95, rel=1e-3)
    assert np.abs(ellipse[:, 1]).max() == pytest.approx(plots.RADIUS_95, rel=1e-3)


def test_plots_of_one_parameter_and_of_many(tmp_path):
    one = orn.compare(
        {"it": Gaussian(np.zeros(1), np.eye(1))}, reference=Gaussian(np.ones(1), np.eye(1))
    ).plot()
    assert len(one.axes) == 1
    size = 2500
    many = {"it": Gaussian(np.zeros(size), np.linspace(1.0, 2.0, size))}
    figure = orn.compare(
        many, reference=Gaussian(np.zeros(size), np.linspace(1.0, 3.0, size))
    ).plot(tmp_path / "many.svg")
    assert len(figure.axes[1].get_yticklabels()) == plots.MOST_PARAMETERS
    assert "of 2500 parameters that differ most" in figure.axes[1].get_title()


def test_plots_of_one_posterior(posteriors, model, tmp_path):
    for draw in (plots.trace, plots.marginals, plots.ellipses):
        path = tmp_path / f"{draw.__name__}.png"
        draw(posteriors["full"], path=path)
        assert path.stat().st_size > 5_000
    assert len(plots.trace(posteriors["full"], ["x1"]).axes) == 1
    with pytest.raises(orn.InputError, match=r"unknown parameters \['z'\]"):
        plots.marginals(posteriors["full"], ["z"])
    with pytest.raises(orn.InputError, match="whose law was predicted"):
        plots.ellipses(posteriors["laplace"])
    with pytest.raises(orn.InputError, match="there is no ELBO to plot"):
        plots.elbo(posteriors["laplace"])
    with pytest.raises(orn.InputError, match="only moments were kept"):
        plots.trace(
            orn.sample(
                model, orn.ConstantSGD("full"), draws=20, warmup=10, keep="moments", progress=False
            )
        )
    with pytest.raises(orn.FileError, match=r"cannot write .*plot\.png: No such file"):
        plots.marginals(posteriors["full"], path=tmp_path / "absent" / "plot.png")


def test_no_global_state():
    """Plots touch neither pyplot nor its figures; comparing needs no ArviZ where there are no
    draws.
    """
    code = (
        "import sys, numpy as np, ornstein as orn\n"
        "law = orn.Gaussian(np.zeros(2), np.eye(2))\n"
        "orn.compare({'a': law}, reference=law).plot()\n"
        "assert 'matplotlib.pyplot' not in sys.modules and 'numpyro' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
