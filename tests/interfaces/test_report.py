"""The report: complete, safe, needing nothing else, and looking right in a real browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from chromium import Chromium, find_chromium

import ornstein as orn
from ornstein.interfaces.report.calibration import calibrate
from ornstein.interfaces.report.figures import Predicted, block, telling_pairs
from ornstein.interfaces.report.theme import as_svg
from ornstein.regression.regress import Request, regression

WIDE, PHONE = 1280, 390
NASTY = "</style><script>console.error(1)</script>"


def features(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, columns)) @ (
        np.eye(columns) + 0.3 * rng.normal(size=(columns, columns))
    )


@pytest.fixture(scope="module")
def fitted() -> orn.Posterior:
    """A table with names that break what is careless: mark-up, dollars, other scripts, a very long
    word.
    """
    rng = np.random.default_rng(0)
    values = features(800, 4)
    names = [
        NASTY,
        "price ($) in $",
        "長さ & breite",
        "anotherratherlongcolumnnamewithoutasinglespaceinit",
    ]
    frame = pd.DataFrame(values, columns=names).assign(area=rng.choice(["north", "south"], 800))
    frame["price"] = (
        40.0
        + values @ [1.0, -2.0, 0.5, 0.0]
        + 3.0 * (frame["area"] == "south")
        + rng.normal(size=800)
    )
    frame["長さ & breite"] *= 1e6  # its coefficient has six zeros after the point
    model = regression(Request("price ~ ."), frame)
    return orn.sample(model, orn.ConstantSGD("full"), draws=400, progress=False)


@pytest.fixture(scope="module")
def page(fitted, tmp_path_factory) -> Path:
    return fitted.report(tmp_path_factory.mktemp("report") / "report.html")


class Elements(HTMLParser):
    """Open tags balance; which elements there are, with which attributes."""

    EMPTY = ("meta", "link", "path", "use", "rect", "br", "img", "input", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
            self.open.pop()


def test_the_page_leads_with_two_verdicts_and_the_coefficients(page):
    text = page.read_text(encoding="utf-8")
    sections = re.findall(r'<section id="([^"]+)"', text)
    assert sections == [
        "answers",
        "coefficients",
        "verdict",
        "critique",
        "effects",
        "calibration",
        "covariance",
        "chains",
        "settings",
    ]
    assert re.search(r"Verdict: (trusted|caution|not trusted)", text)
    assert re.search(r"Model: (fits|doubtful|does not fit)", text)


def test_rows_say_what_they_are_compared_with_and_their_prior(fitted, page):
    text = page.read_text(encoding="utf-8")
    (small,) = re.findall(r"<span>area=south</span><small>([^<]*)</small>", text)
    assert small.startswith("compared with area=north · prior Normal(0, ")
    for name, prior in fitted.model.priors.items():
        assert f"prior {prior}" in text, name


def test_bars_are_in_the_units_of_the_numbers(tmp_path):
    """Those of one factor share a scale, with zero in the middle; a shared interval is the same
    share of the track in every row.
    """
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"x": 1e6 * rng.normal(size=400), "g": rng.choice(list("abc"), 400)})
    frame["y"] = 1e-6 * frame["x"] + frame["g"].map({"a": 0.0, "b": 1.0, "c": -3.0})
    frame["y"] += 0.5 * rng.normal(size=400)
    post = orn.laplace(orn.regress("y ~ x + g", frame, progress=False), seed=0)
    text = post.report(tmp_path / "r.html").read_text(encoding="utf-8")
    pattern = r"interval[^>]*left:([-\d.]+)%;width:([\d.]+)%"
    left, width = np.array(re.findall(pattern, text), dtype=float).T
    summary = post.summary()
    low, high = summary["2.5%"].to_numpy(), summary["97.5%"].to_numpy()
    ends = np.maximum(np.abs(low), np.abs(high))
    reach = np.array([ends[0], ends[1:3].max(), ends[1:3].max(), *ends[3:]])
    # the scale is shown as exp of what is sampled
    for row in range(4):
        assert left[row] == pytest.approx(50.0 + 47.0 * low[row] / reach[row], abs=0.02)
        assert width[row] == pytest.approx(47.0 * (high[row] - low[row]) / reach[row], abs=0.02)


def test_the_page_needs_nothing_else_and_runs_nothing(page):
    elements = Elements(page.read_text(encoding="utf-8"))
    assert elements.open == []
    tags = {tag for tag, _ in elements.seen}
    assert not tags & {"script", "iframe", "object", "embed", "img"}
    for _, attributes in elements.seen:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("href", "src", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    style = re.search(r"<style>(.*?)</style>", page.read_text(encoding="utf-8"), re.DOTALL)
    assert style is not None
    assert "@import" not in style.group(1)
    assert "url(" not in style.group(1)


def test_names_are_escaped_everywhere(page):
    text = page.read_text(encoding="utf-8")
    assert NASTY not in text
    assert "&lt;/style&gt;&lt;script&gt;" in text
    assert "price ($) in $" in text


def test_ids_are_unique(page):
    ids = [
        attributes["id"]
        for _, attributes in Elements(page.read_text(encoding="utf-8")).seen
        if "id" in attributes
    ]
    assert len(ids) == len(set(ids))


def test_numbers_in_the_table_are_those_of_the_summary(fitted, page):
    from ornstein.interfaces.table.fitting import shown

    summary = shown(fitted).summary()
    rows = re.findall(r'<td data-label="mean">([^<]+)</td>', page.read_text(encoding="utf-8"))
    found = np.array([float(text.replace("−", "-").replace(",", "")) for text in rows])
    np.testing.assert_array_less(
        np.abs(found - summary["mean"].to_numpy()), 0.01 * summary["sd"].to_numpy()
    )


def test_figures_use_the_page_s_colours_only(page):
    text = page.read_text(encoding="utf-8")
    for figure in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        assert not re.findall(r"#[0-9a-f]{6}\b", figure)
        assert "var(--" in figure


def test_a_loaded_fit_is_reported_without_its_data(fitted, tmp_path):
    path = orn.load(fitted.save(tmp_path / "fit.orn")).report(tmp_path / "again.html")
    sections = re.findall(r'<section id="([^"]+)"', path.read_text(encoding="utf-8"))
    parts = ["answers", "coefficients", "verdict", "critique", "covariance", "chains", "settings"]
    assert sections == parts
    assert "price" in path.read_text(encoding="utf-8")
    with pytest.raises(orn.FileError, match="cannot write"):
        fitted.report(tmp_path / "absent" / "report.html")


FULL = orn.ConstantSGD("full")
ALL = ("effects", "calibration", "covariance", "chains")


def sampled(sampler=FULL, columns: int = 3, **options) -> orn.Posterior:
    values = features(400, columns)
    model = orn.glm(
        values, values.sum(axis=1) + np.random.default_rng(1).normal(size=400), prior_precision=1.0
    )
    return orn.sample(model, sampler, progress=False, **{"draws": 60, "chains": 2, **options})


@pytest.mark.parametrize(
    ("make", "sections"),
    [
        (
            lambda: sampled(orn.ConstantSGD("full", damping=0.5)),
            ALL,
        ),
        (lambda: sampled(orn.IASG()), ALL),
        (lambda: sampled(draws=2, chains=1), ALL),
        (lambda: sampled(columns=70), ALL),
        (lambda: sampled(keep="moments"), ()),
        (lambda: orn.laplace(sampled(draws=1).model), ("effects", "calibration")),
        (
            lambda: orn.sample(
                orn.glm(
                    features(300, 1),
                    features(300, 1)[:, 0],
                    noise_scale=1.0,
                    intercept=False,
                    prior_precision=1.0,
                ),
                orn.ConstantSGD("full"),
                draws=50,
                progress=False,
            ),
            ("effects", "calibration", "chains"),
        ),
    ],
    ids=[
        "momentum",
        "windows",
        "two draws",
        "many parameters",
        "moments",
        "laplace",
        "one parameter",
    ],
)
@pytest.mark.filterwarnings("ignore::ornstein.OrnsteinWarning")
def test_every_kind_of_posterior_has_a_report(make, sections, tmp_path):
    text = make().report(tmp_path / "report.html").read_text(encoding="utf-8")
    found = re.findall(r'<section id="([^"]+)"', text)
    first = ("answers", "coefficients", "verdict", "critique")
    assert tuple(found) == (*first, *sections, "settings")
    assert Elements(text).open == []


def test_an_svg_keeps_its_text_as_text():
    svg = as_svg(
        lambda figure, roles: figure.add_subplot().set_title("a $ b"), "name", 'says "hello"'
    )
    assert ">a $ b</text>" in svg
    assert 'aria-label="says &quot;hello&quot;"' in svg
    assert "DejaVu" not in svg


def test_the_pairs_shown_are_the_ones_that_differ_most(fitted):
    """Against all pairs by the KL of their ellipses, up to the part that does not depend on the
    draws.
    """
    size = fitted.mean.size

    def difference(pair: tuple[int, int]) -> float:
        law = orn.Gaussian(np.zeros(2), block(fitted.prediction.covariance, list(pair)))
        return orn.kl(orn.Gaussian(np.zeros(2), block(fitted.covariance, list(pair))), law)

    pairs = [(first, second) for first in range(size) for second in range(first + 1, size)]
    chosen = telling_pairs(Predicted.of(fitted), np.arange(size))
    assert chosen[0] == max(pairs, key=difference)
    assert not set(chosen[0]) & set(chosen[1])
    sd = fitted.prediction.covariance / np.sqrt(
        np.outer(*[np.diagonal(fitted.prediction.covariance)] * 2)
    )
    assert chosen[2] == max(
        (pair for pair in pairs if pair not in chosen[:2]), key=lambda pair: abs(sd[pair])
    )


def calibrated(family: str, wrong: bool, rows: int = 4000):
    """Laplace on data that the model describes, or does not: noise of two sizes, counts too spread,
    logits not linear.
    """
    rng = np.random.default_rng(5)
    values = features(rows, 3, seed=6)
    signal = 0.4 * values @ [1.0, -1.0, 0.5]
    if family == "gaussian":
        noise = rng.normal(size=rows) * (
            np.where(rng.uniform(size=rows) < 0.2, 4.0, 0.5) if wrong else 1.0
        )
        response = signal + noise
    elif family == "poisson":
        response = rng.poisson(np.exp(signal + 1.0) * (rng.gamma(1.0, 1.0, rows) if wrong else 1.0))
    elif family == "gamma":
        shape = np.where(rng.uniform(size=rows) < 0.5, 0.5, 8.0) if wrong else 2.0
        response = np.exp(signal) * rng.gamma(shape, 1.0 / shape, rows)
    elif family == "bernoulli":
        response = rng.uniform(size=rows) < scipy.special.expit(
            (4.0 * np.maximum(signal, 0.0) - 0.5) if wrong else signal
        )
    else:
        # A bent signal, as above: one that linear logits do not see at all would leave base rates,
        # and those are calibrated.
        logits = np.outer(
            4.0 * np.maximum(signal, 0.0) - 0.5 if wrong else signal, [0.0, 1.0, -1.0]
        )
        response = (rng.gumbel(size=(rows, 3)) + logits).argmax(axis=1)
    model = orn.glm(values, response, family=family, prior_precision=1.0)
    return calibrate(orn.laplace(model, draws=200, chains=1), model)


@pytest.mark.parametrize("family", ["gaussian", "poisson", "gamma", "bernoulli", "categorical"])
def test_calibration_tells_a_right_model_from_a_wrong_one(family):
    """Numbers: Kolmogorov–Smirnov against uniform. Classes: χ² of the groups. Right: p above 1e-3;
    wrong: below 1e-6.
    """

    def p_value(found) -> float:
        if found.transforms is not None:
            return float(scipy.stats.kstest(found.transforms, "uniform").pvalue)
        curve = found.reliability
        error = (curve.high - curve.low) / 2.0 / scipy.stats.norm.isf(0.025)
        return float(
            scipy.stats.chi2.sf(
                np.sum(((curve.happened - curve.promised) / error) ** 2), curve.promised.size
            )
        )

    right, wrong = calibrated(family, wrong=False), calibrated(family, wrong=True)
    assert p_value(right) > 1e-3
    assert p_value(wrong) < 1e-6
    assert right.rows == 4000
    assert "%" in right.sentence


OVERFLOWING = """
[...document.querySelectorAll('body *')].filter(element => {
  const box = element.getBoundingClientRect();
  const outside = box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
  return outside && !element.closest('.table') && !element.closest('.sr');
}).map(element => element.tagName + '.' + element.getAttribute('class'))
"""
UNREADABLE = """
(() => {
  const channel = value => { value /= 255;
        return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4; };
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number);
    return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  };
  const ground = element => {
    for (let node = element; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (!colour.endsWith(', 0)')) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const bad = [];
  for (const element of document.querySelectorAll(
    'p, h1, h2, h3, td, th, dt, dd, li span, figcaption, svg text, summary')) {
    if (!element.textContent.trim() || element.closest('.sr')) continue;
    const style = getComputedStyle(element);
    const ink = element.closest('svg') ? style.fill : style.color;
    const [a, b] = [light(ink), light(ground(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5)
        bad.push(element.tagName + ' ' + contrast.toFixed(2) + ' '
            + element.textContent.trim().slice(0, 30));
  }
  return bad;
})()
"""
SMALLEST = """
Math.min(...[...document.querySelectorAll('svg')].flatMap(svg => {
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  return [...svg.querySelectorAll('text')]
    .map(text => scale * parseFloat(getComputedStyle(text).fontSize));
}))
"""


@pytest.fixture(scope="module")
def browser():
    executable = find_chromium()
    if executable is None:
        pytest.skip(
            "no Chromium was found: install Debian's package chromium, or set CHROMIUM to its path"
        )
    with Chromium(executable) as opened:
        yield opened


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        pytest.param(WIDE, False, id="wide-light"),
        pytest.param(PHONE, True, id="phone-dark"),
        pytest.param(WIDE, True, id="wide-dark", marks=pytest.mark.slow),
        pytest.param(PHONE, False, id="phone-light", marks=pytest.mark.slow),
    ],
)
def test_in_a_browser_nothing_overflows_and_all_can_be_read(browser, page, tmp_path, width, dark):
    """Contrast of all text at least 4.5 to 1 (WCAG AA), labels in figures at least 7 pixels high,
    no message in the console.
    """
    browser.problems.clear()
    browser.requests.clear()
    browser.open(page, width, dark)
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert (
        browser.evaluate(
            "[...document.querySelectorAll('.table')].filter(e => e.scrollWidth >"
            " e.clientWidth).length"
        )
        == 0
    )
    assert browser.evaluate(OVERFLOWING) == []
    assert browser.evaluate(UNREADABLE) == []
    assert browser.evaluate(SMALLEST) >= 7.0
    browser.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    picture = tmp_path / "report.png"
    browser.screenshot(picture)
    assert browser.problems == []
    assert [url for url in browser.requests if not url.startswith(("file://", "data:"))] == []
    assert_painted(picture, width, dark)


def assert_painted(picture: Path, width: int, dark: bool) -> None:
    """A picture of the right width, mostly of the page's ground, with more than a few colours on
    it.
    """
    from matplotlib.image import imread

    pixels = imread(picture)[:, :, :3]
    assert pixels.shape[1] == width
    assert pixels.shape[0] > 1500
    brightness = pixels.mean(axis=2)
    assert (np.median(brightness) < 0.2) if dark else (np.median(brightness) > 0.9)
    assert len(np.unique((pixels.reshape(-1, 3) * 15).astype(int), axis=0)) > 50


def test_the_browser_s_checks_would_notice(browser, page, tmp_path):
    """Negative control: a page that is too wide, shouts in the console, asks the network and hides
    its text.
    """
    text = page.read_text(encoding="utf-8").replace(
        "default-src 'none'", "default-src *; script-src 'unsafe-inline'"
    )
    spoilt = (
        '<div style="width:2000px;color:#777;background:#777"><p>unseen</p></div>'
        '<script>console.error("loud")</script>'
    )
    path = tmp_path / "spoilt.html"
    path.write_text(
        text.replace("</main>", spoilt + '<img src="http://127.0.0.1:9/x.png"></main>'),
        encoding="utf-8",
    )
    browser.problems.clear()
    browser.requests.clear()
    browser.open(path, WIDE, dark=False)
    assert browser.evaluate("document.documentElement.scrollWidth") > WIDE
    assert browser.evaluate(OVERFLOWING) != []
    assert any("unseen" in line for line in browser.evaluate(UNREADABLE))
    assert any("loud" in problem for problem in browser.problems)
    assert any(url.startswith("http:") for url in browser.requests)
