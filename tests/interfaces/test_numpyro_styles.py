"""NumPyro models as people write them: a few here, the list of 53 at night."""

from __future__ import annotations

import sys
import warnings
from functools import partial

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import init_to_median
from numpyro_models import MODELS
from numpyro_models.outcomes import outcome
from scipy.special import logsumexp
from scipy.stats import norm

import ornstein as orn
from ornstein.interfaces.numpyro.model import NumPyroModel
from ornstein.model.network import whole_network
from ornstein.verdict.density import Density

ENOUGH, TRUSTED = 45, 0.8  # of the 53, and of those that end in a posterior


def made(name):
    call = MODELS[name].build()
    return orn.from_numpyro(call.model, *call.args, **call.kwargs)


def test_the_list_is_complete():
    assert len(MODELS) == 53


slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        slow("observations by handlers.condition", ("x",)),
        slow("data by closure", ("outside 0",)),
        slow("observations by functools.partial", ("x",)),
        ("a DataFrame as the argument", ("df.group", "df.x")),
        slow("group indices by closure", ("x", "outside 0")),
        ("rows with missing outcomes, masked", ("x",)),
        slow("a method of a class that holds the data", ("outside 0",)),
        slow("a dictionary of data, subsampled in the plate", ("data.x",)),
    ],
)
def test_rows_are_found_wherever_they_are(name, inputs):
    """The split has been compared with the whole density at construction."""
    model = made(name)
    assert isinstance(model, NumPyroModel), model.undivided
    assert model.n_data == 600
    assert model.evaluation.rows.inputs == inputs


def mixture(y):
    share = numpyro.sample("share", dist.Beta(2.0, 2.0))
    with numpyro.plate("data", len(y)):
        which = numpyro.sample("which", dist.Bernoulli(share))
        numpyro.sample("y", dist.Normal(jnp.where(which == 1, 2.0, -2.0), 1.0), obs=y)


def test_discrete_latents_of_rows_are_summed_out_row_by_row():
    """Against the mixture written by hand."""
    y = np.random.default_rng(0).normal(size=40)
    model = orn.from_numpyro(mixture, y)
    assert (model.n_data, model.undivided) == (40, "")
    u = 0.7
    share = 1.0 / (1.0 + np.exp(-u))
    rows = logsumexp(
        [np.log(share) + norm.logpdf(y, 2.0), np.log1p(-share) + norm.logpdf(y, -2.0)], axis=0
    )
    prior = np.log(6.0 * share * (1.0 - share)) + np.log(share * (1.0 - share))
    found = -Density(model).values(np.array([[u]]))[0]
    assert found == pytest.approx(rows.sum() + prior, rel=1e-10)


def test_without_funsor_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "funsor", None)
    with pytest.raises(orn.InputError, match=r"pip install 'ornstein\[enumeration\]'"):
        orn.from_numpyro(mixture, np.arange(4.0))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "counts of unseen birds: a Poisson latent, which cannot be enumerated",
            "infinitely many values",
        ),
        ("Neal's funnel, which observes nothing", "no observed site"),
    ],
)
def test_a_refusal_names_the_reason(name, reason):
    with pytest.raises(orn.InputError, match=reason):
        made(name)


@pytest.fixture(scope="module")
def two_rates():
    model = made("cognitive modelling: two rates and their difference")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", orn.OrnsteinWarning)
        return model, orn.sample(model, draws=500, chains=4, progress=False)


def test_a_model_without_rows_runs_by_nuts_and_keeps_its_deterministic_sites(two_rates):
    """Conjugate: Beta(6, 6) and Beta(8, 4). The error of a mean is about .02 of its sd."""
    model, post = two_rates
    assert "no observed site has a leading axis" in model.undivided
    assert post.settings["way"] == "nuts"
    assert post.check().level == "trusted"
    assert set(post.params) == {"theta1", "theta2", "delta"}
    assert post.params["theta1"].mean() == pytest.approx(6 / 12, abs=0.02)
    assert post.params["delta"].mean() == pytest.approx(6 / 12 - 8 / 12, abs=0.03)
    tree = post.to_arviz(groups=["posterior_predictive", "log_likelihood", "observed_data"])
    assert set(tree["posterior_predictive"].data_vars) == {"k1", "k2", "delta"}
    assert tree["log_likelihood"]["k1"].shape == (4, 500)
    assert tree["observed_data"]["k2"].values.item() == 7
    with pytest.raises(orn.InputError, match="loo needs single rows"):
        post.loo()


@pytest.mark.slow
def test_a_network_with_random_weights_goes_to_nuts():
    """It is no sum over rows for us, and its parameters are compared with its observed values."""
    model = made("a Flax NNX network with random weights")
    assert (model.n_data, model.observations) == (1, 80)
    assert "14 parameters for 80 rows" in whole_network(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", orn.ConvergenceWarning)
        post = orn.sample(model, draws=50, chains=2, remedy=False, progress=False)
    assert post.settings["way"] == "nuts"
    assert post.check()["whole network"].level == "caution"


def test_starts_follow_numpyros_strategy():
    def model(y):
        mean = numpyro.sample("mean", dist.Normal(50.0, 0.5))
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y.mean())

    y = np.full(5, 50.0)
    near = orn.from_numpyro(model, y, init_strategy=init_to_median)
    anywhere = orn.from_numpyro(model, y)
    assert np.all(np.abs(near.starts(4, 0) - 50.0) < 2.0)
    assert np.all(np.abs(anywhere.starts(4, 0)) <= 2.0)
    assert len(np.unique(anywhere.starts(4, 0))) == 4


@pytest.mark.nightly
def test_most_of_the_list_ends_trusted_and_near_nuts():
    outcomes = [outcome(case) for case in MODELS.values()]
    table = "\n".join(map(str, outcomes))
    done = [each for each in outcomes if each.level != "refused"]
    trusted = [each for each in done if each.level == "trusted"]
    assert len(done) >= ENOUGH, table
    assert len(trusted) >= TRUSTED * len(done), table
    assert [each for each in trusted if not each.worst <= 1.0] == [], table
