"""The explorer of the documentation: its numbers are those of Python, and it looks as it should."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from chromium import Chromium, find_chromium

import ornstein as orn

PAGE = Path(__file__).parents[1] / "docs" / "explorer" / "index.html"
ROWS, CLOSE = 1000, 1e-6
# As the sliders stand: powers of ten but for momentum and the angles.
PLACES = {
    "as it opens": (0.0, 1.0, 0.0, 0.5, -0.5, 30, 0.5, -0.5, 30),
    "noise unlike the curvature": (0.0, 1.0, 0.0, 0.5, -0.5, 30, -0.3, 0.6, 70),
    "a large step": (0.5, 1.0, 0.0, 0.5, -0.5, 30, 0.5, -0.5, 30),
    "a small step": (-1.2, 1.5, 0.0, 0.2, -0.9, 110, 0.1, 0.4, 15),
    "diverging": (0.0, 2.85, 0.0, 1.2, -1.0, 30, 0.0, 0.0, 0),
    "momentum": (-0.2, 1.0, 0.9, 0.5, -0.5, 30, -0.3, 0.6, 70),
}
NAMES = ("step", "batch", "momentum", "a1", "a2", "aAngle", "c1", "c2", "cAngle")


@pytest.fixture(scope="module")
def browser():
    executable = find_chromium()
    if executable is None:
        pytest.skip("needs Chromium (chromium or google-chrome on the PATH, or CHROMIUM=path)")
    with Chromium(executable) as page:
        yield page


def rotated(first, second, degrees):
    angle = np.deg2rad(degrees)
    axes = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return axes @ np.diag([first, second]) @ axes.T


def expected(form, place):
    """The law by the library, of the same preconditioner."""
    step, size, momentum, a1, a2, a_angle, c1, c2, c_angle = place
    A = rotated(10.0**a1, 10.0**a2, a_angle)
    C = rotated(10.0**c1, 10.0**c2, c_angle)
    S, damping = 10.0**size, 1.0 - momentum
    H = {
        "scalar": 4.0 * S / (ROWS * np.trace(C)) * np.eye(2),
        "diagonal": np.diag(2.0 * S / (ROWS * np.diag(C))),
        "full": 2.0 * damping * np.linalg.inv(damping / (2.0 - damping) * A + ROWS / S * C),
    }[form]
    # A minibatch has whole rows there; the noise of S rows is that of one row with C/S.
    curvature = orn.Curvature(mode=np.zeros(2), hessian=A, noise=C / S, n_data=ROWS)
    return orn.Dynamics(10.0**step * H, 1, damping=damping).predict(curvature)


@pytest.mark.parametrize("name", PLACES)
def test_its_numbers_are_those_of_python(browser, name):
    place = PLACES[name]
    browser.open(PAGE, 1100, dark=False)
    query = "&".join(f"{key}={value}" for key, value in zip(NAMES, place, strict=True))
    browser.evaluate(f"take({query!r})")
    stable = 0
    for form in ("scalar", "diagonal", "full"):
        found = json.loads(browser.evaluate(f"JSON.stringify(laws[{form!r}])"))
        law = expected(form, place)
        assert (found["covariance"] is not None) == law.stable
        if not law.stable:
            assert found["regime"] == "diverges"
            continue
        stable += 1
        assert np.allclose(found["covariance"], law.covariance, rtol=CLOSE, atol=0.0)
        assert np.allclose(found["kl_qp"], law.kl_qp, rtol=CLOSE, atol=CLOSE)
        assert np.allclose(found["kl_pq"], law.kl_pq, rtol=CLOSE, atol=CLOSE)
        assert np.allclose(found["relaxation"], law.relaxation_time, rtol=CLOSE)
    assert stable < 3 if name == "diverging" else stable > 0
    assert not browser.problems


def test_with_noise_like_the_curvature_every_form_of_one_shape_is_the_posterior(browser):
    browser.open(PAGE, 1100, dark=True)
    words = browser.evaluate(
        "[...document.querySelectorAll('.regime')].map((word) => word.textContent)"
    )
    assert words[2] == "the posterior"
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
    assert not browser.problems


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_sticks_out_of_a_phone(browser, dark):
    browser.open(PAGE, 390, dark=dark)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    labels = browser.evaluate(
        "[...document.querySelectorAll('canvas')].map((canvas) => canvas.ariaLabel)"
    )
    assert len(labels) == 3 and all(labels)
    assert not browser.problems
