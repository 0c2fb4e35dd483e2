"""Networks of PyTorch, where it is installed; and what is said where it is not."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from helpers import ROOT, laplace_instead

import ornstein as orn
from ornstein.interfaces.networks.torch import TorchNetwork

INPUTS, UNITS, CLASSES = 3, 4, 3
QUICK = {"draws": 50, "prior_precision": 1.0, "progress": False}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, INPUTS)).astype(np.float32)
Y = RNG.integers(0, CLASSES, 60)


@pytest.fixture(autouse=True)
def no_chains(monkeypatch):
    monkeypatch.setattr("ornstein.interfaces.networks.last_layer.sample", laplace_instead)


def test_without_torch_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(orn.InputError, match=r"pip install 'ornstein\[torch\]'"):
        orn.from_torch(object(), (X, Y))


@pytest.fixture(scope="module")
def torch():
    found = pytest.importorskip("torch", reason="needs torch")
    found.manual_seed(0)
    found.set_num_threads(1)
    return found


def network(torch, outputs=CLASSES, after=None, bias=True):
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(
                nn.Linear(INPUTS, UNITS), nn.Tanh(), nn.BatchNorm1d(UNITS), nn.Dropout(0.5)
            )
            self.fc = nn.Linear(UNITS, outputs, bias=bias)

        def forward(self, x):
            logits = self.fc(self.body(x))
            return logits if after is None else after(logits)

    return Net()


def by_hand(torch, net):
    net.eval()
    with torch.no_grad():
        found = net.body(torch.as_tensor(X)).numpy()
    net.train()
    return found


@pytest.mark.parametrize("layer", ["fc", "auto"])
def test_what_enters_the_last_layer(torch, layer):
    net = network(torch).train()
    net.body[3].eval()
    found = TorchNetwork.of(net, layer, X)
    assert found.layer == "fc"
    np.testing.assert_allclose(found.features(X), by_hand(torch, net), rtol=1e-6)


def test_the_network_is_left_as_it_was(torch):
    net = network(torch).train()
    net.body[3].eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    TorchNetwork.of(net, "fc").features(X)
    assert net.training and net.body[2].training and not net.body[3].training
    assert not net.fc._forward_hooks
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])


def test_functions_of_the_logits_that_mean_the_same_model(torch):
    for after in (None, lambda z: torch.log_softmax(z, 1), lambda z: torch.softmax(z, 1)):
        assert TorchNetwork.of(network(torch, after=after), "fc").features(X).shape == (60, UNITS)
    for after in (torch.sigmoid, lambda z: z.squeeze(1), lambda z: z[:, 0]):
        net = network(torch, outputs=1, after=after)
        assert TorchNetwork.of(net, "fc").features(X).shape == (60, UNITS)


def test_inputs_of_every_kind(torch):
    found = TorchNetwork.of(network(torch), "fc")
    data = torch.utils.data
    wanted = found.features(X)
    tensors = torch.as_tensor(X)
    loaders = [
        data.DataLoader(data.TensorDataset(tensors, torch.as_tensor(Y)), batch_size=16),
        data.DataLoader(tensors, batch_size=16),
    ]
    for inputs in (tensors, X.astype(float), (X,), {"x": X}, *loaders):
        np.testing.assert_allclose(found.features(inputs), wanted, atol=1e-6)
    assert found.features(np.tile(X, (40, 1))).shape == (2400, UNITS)


def test_predictions_run_the_network_and_files_ask_for_it(torch, tmp_path):
    net = network(torch).train()
    data = torch.utils.data
    rows = data.TensorDataset(torch.as_tensor(X), torch.as_tensor(Y))
    loader = data.DataLoader(rows, batch_size=16, shuffle=True)
    post = orn.from_torch(net, loader, layer="fc", held_out=(X, Y), **QUICK)
    found = post.predict(torch.as_tensor(X[:5])).mean
    assert net.training
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    back = orn.load(post.save(tmp_path / "net.orn"))
    np.testing.assert_array_equal(back.predict(X[:5], net=net).mean, found)
    np.testing.assert_array_equal(back.predict(by_hand(torch, net)[:5]).mean, found)
    net.eval()
    with torch.no_grad():
        logs = torch.log_softmax(net(torch.as_tensor(X)), 1).numpy()
    wanted = -np.mean(logs[np.arange(60), Y])
    assert post.calibration["trained network"].loss == pytest.approx(wanted, rel=1e-5)
    with torch.no_grad():
        net.fc.weight += 1.0
    with pytest.raises(orn.InputError, match="not the network that the posterior was made from"):
        back.predict(X[:5], net=net)


def test_a_regression_head(torch):
    target = (X @ [1.0, 2.0, 3.0]).astype(np.float32)[:, None]
    net = network(torch, outputs=1)
    post = orn.from_torch(net, (X, target), held_out=(X, target), **QUICK)
    assert "log_scale" in post.names
    assert post.predict(X[:4]).outcome.sd.shape == (4,)


def test_networks_in_less_than_single_precision(torch):
    net = network(torch).to(torch.bfloat16)
    assert TorchNetwork.of(net, "fc").features(X).shape == (60, UNITS)


def odd(torch, kind):
    nn = torch.nn

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(INPUTS, INPUTS)
            self.conv = nn.Conv1d(1, 1, 1)

        def forward(self, x):
            if kind == "twice":
                return self.fc(torch.tanh(self.fc(x)))
            if kind == "never":
                return x
            if kind == "three axes":
                return self.fc(torch.stack([x, x], 1))
            if kind == "a dict":
                return {"logits": self.fc(x)}
            return 2.0 * self.fc(x)

    return Odd()


@pytest.mark.parametrize(
    ("kind", "layer", "words"),
    [
        ("twice", "fc", "runs its layer 'fc' 2 times"),
        ("never", "fc", "runs its layer 'fc' never"),
        ("three axes", "fc", "must be two-dimensional"),
        ("a dict", "fc", "returns a dict; wrap it"),
        ("doubled", "fc", "is not the last"),
        ("doubled", "auto", "is not the last"),
        ("doubled", "conv", "'conv' is a Conv1d; a linear layer is needed: fc"),
        ("doubled", "head", "no linear layer 'head'; there are fc"),
    ],
)
def test_refusals(torch, kind, layer, words):
    with pytest.raises(orn.InputError, match=words):
        orn.from_torch(odd(torch, kind), (X, Y), layer=layer, **QUICK)


def test_other_refusals(torch):
    with pytest.raises(orn.InputError, match=r"must be a torch\.nn\.Module; got a dict"):
        orn.from_torch({}, (X, Y))
    with pytest.raises(orn.InputError, match="no linear layer"):
        orn.from_torch(torch.nn.Tanh(), (X, Y))
    with pytest.raises(orn.InputError, match="must be tensors or arrays"):
        TorchNetwork.of(network(torch), "fc").features("text")
    with pytest.raises(orn.InputError, match="'fc' holds values that are not finite"):
        TorchNetwork.of(network(torch), "fc").features(np.full((2, INPUTS), np.nan))
    with pytest.raises(orn.InputError, match=r"label 3; the outputs of the layer .* 0 to 2"):
        orn.from_torch(network(torch), (X, Y + 1), layer="fc", **QUICK)


@pytest.mark.slow
def test_the_page_on_networks_runs(torch):
    text = (ROOT / "docs" / "networks.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```py\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    exec(compile(block, "networks.md", "exec"), {})
