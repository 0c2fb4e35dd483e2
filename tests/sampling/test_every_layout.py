"""Every family on rows of every kind and width: a posterior with a verdict, or a sentence that says
what to do. No other error reaches the user.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse

import ornstein as orn

FACTORS = {
    "family": ("gaussian", "bernoulli", "categorical", "poisson"),
    "layout": ("dense", "sparse", "memory map", "dask"),
    "width": (10, 2500, 5000),
    "intercept": (True, False),
    "noise_scale": ("infer", 1.0),
}
EVERY = list(itertools.product(*FACTORS.values()))
ROWS = 80
SHORT = {"draws": 10, "chains": 2, "max_steps": 4000, "progress": False}
# What a sentence asks the user to do begins with one of these.
REMEDIES = ("use ", "give ", "raise ", "drop ", "choose ", "start ", "bring ", "ask ", "look ")


def cost(case):
    """About how long a case takes: wide rows on a cluster the longest."""
    family, layout, width, *_ = case
    return width * (20 if layout == "dask" else 1) * (3 if family == "categorical" else 1)


def pairs(case):
    return set(itertools.combinations(enumerate(case), 2))


def covering():
    """Some cases in which every pair of levels of two factors occurs, quick ones first."""
    missing, chosen = set().union(*map(pairs, EVERY)), []
    while missing:
        best = max(EVERY, key=lambda case: (len(pairs(case) & missing), -cost(case)))
        missing -= pairs(best)
        chosen.append(best)
    return chosen


def data(family, width):
    rng = np.random.default_rng(width)
    X = scipy.sparse.random(
        ROWS, width, density=min(0.5, 40 / width), random_state=rng, data_rvs=rng.standard_normal
    ).tocsr()
    linear = X @ rng.normal(size=width) * 0.3
    y = {
        "gaussian": linear + rng.normal(size=ROWS),
        "bernoulli": (linear + rng.logistic(size=ROWS) > 0).astype(int),
        "categorical": np.digitize(linear + rng.normal(size=ROWS), [-0.5, 0.5]),
        "poisson": rng.poisson(np.exp(np.clip(linear, -3.0, 2.0))),
    }[family]
    return X, y


def laid_out(X, y, layout, folder):
    if layout == "sparse":
        return X, y
    dense = X.toarray()
    if layout == "memory map":
        np.save(folder / "x.npy", dense)
        return np.load(folder / "x.npy", mmap_mode="r"), y
    if layout == "dask":
        da = pytest.importorskip("dask.array")
        return da.from_array(dense, chunks=(ROWS // 2, -1)), da.from_array(y, chunks=ROWS // 2)
    return dense, y


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            dashboard_address=None,
            silence_logs=50,
        ) as local,
        distributed.Client(local) as connected,
    ):
        yield connected


def outcome(run):
    """A verdict's level, or the words of a refusal; any other error goes on to the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            post = run()
            assert isinstance(post, orn.Posterior) and np.all(np.isfinite(post.draws))
            assert post.draws.shape[:2] == (2, 10)
            return post.check().level
        except orn.OrnsteinError as error:
            return str(error)


def require_answer(found):
    if found in ("trusted", "caution", "not trusted"):
        return
    assert 20 <= len(found) <= 1000 and "\n" not in found
    assert any(remedy in found.lower() for remedy in REMEDIES), f"no remedy in {found!r}"


def require_answer_to(case, folder, request):
    family, layout, width, intercept, noise_scale = case
    X, y = laid_out(*data(family, width), layout, folder)
    client = request.getfixturevalue("client") if layout == "dask" else None

    def run():
        model = orn.glm(
            X, y, family, intercept=intercept, noise_scale=noise_scale, prior_precision=1.0
        )
        return orn.sample(model, orn.ConstantSGD("full"), client=client, **SHORT)

    require_answer(outcome(run))


CLUSTER_WARNINGS = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
pytestmark = CLUSTER_WARNINGS


def name(case):
    return "-".join(map(str, case))


def test_the_selection_has_every_pair():
    assert set().union(*map(pairs, covering())) == set().union(*map(pairs, EVERY))
    assert len(covering()) < len(EVERY) // 5


@pytest.mark.parametrize("case", covering(), ids=name)
def test_a_posterior_or_a_sentence(case, tmp_path, request):
    require_answer_to(case, tmp_path, request)


@pytest.mark.slow
@pytest.mark.parametrize("case", EVERY, ids=name)
def test_a_posterior_or_a_sentence_for_every_combination(case, tmp_path, request):
    require_answer_to(case, tmp_path, request)


WIDE = {
    "gaussian": lambda X, y: orn.glm(X, y, prior_precision=1.0),
    "no intercept": lambda X, y: orn.glm(X, y, intercept=False, prior_precision=1.0),
    "explained exactly": lambda X, y: orn.glm(X, X @ np.ones(X.shape[1]), prior_precision=1.0),
    "flat": lambda X, y: orn.glm(X, y, prior_precision=0.0),
    "large numbers": lambda X, y: orn.glm(X * 1e4, y * 1e8, prior_precision=1.0),
    "small numbers": lambda X, y: orn.glm(X * 1e-4, y * 1e-8, prior_precision=1.0),
    "little noise": lambda X, y: orn.glm(X, y, noise_scale=1e-6, prior_precision=1.0),
}
SAMPLERS = {
    "default": None,
    "SGLD": orn.SGLD(),
    "SGFS": orn.SGFS("diagonal"),
    "IASG": orn.IASG(),
    "SGHMC": orn.SGHMC(),
}


@pytest.mark.parametrize(
    ("kind", "sampler"),
    [
        ("gaussian", "SGLD"),
        ("explained exactly", "default"),
        ("flat", "IASG"),
        ("large numbers", "SGHMC"),
        ("small numbers", "SGFS"),
        ("little noise", "SGLD"),
    ],
)
@pytest.mark.parametrize("width", [2500, 5000])
def test_wide_regressions_with_every_sampler(kind, sampler, width):
    X, y = data("gaussian", width)
    require_answer(outcome(lambda: orn.sample(WIDE[kind](X, y), SAMPLERS[sampler], **SHORT)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("rows", [30, 80, 3000])
@pytest.mark.parametrize("width", [2500, 5000])
def test_wide_regressions_in_every_combination(kind, sampler, rows, width):
    rng = np.random.default_rng(rows)
    X = scipy.sparse.random(rows, width, density=0.01, random_state=rng, format="csr")
    y = X @ rng.normal(size=width) + rng.normal(size=rows)
    require_answer(outcome(lambda: orn.sample(WIDE[kind](X, y), SAMPLERS[sampler], **SHORT)))


@pytest.mark.parametrize("start", [(0.0, 0.0), (0.0, 1.0), (3.0, -2.0)])
@pytest.mark.parametrize("level", [1e-9, 2.0, 1e9])
def test_a_product_of_two_parameters(start, level):
    """Its Hessian has a direction without curvature, and zeros on its diagonal at the origin."""
    values = level * (1.0 + 0.1 * np.random.default_rng(0).normal(size=100))
    init = {"a": start[0], "b": start[1]}

    def log_likelihood(params, value):
        return -0.5 * (value - params["a"] * params["b"]) ** 2

    require_answer(
        outcome(lambda: orn.sample(orn.Model(log_likelihood, values, init=init), **SHORT))
    )
