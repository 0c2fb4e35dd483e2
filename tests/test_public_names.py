"""The public names: found where the table says, known to type checkers, and no obstacle to
pickling.
"""

from __future__ import annotations

import ast
import inspect

import cloudpickle
import generated
import pytest
import stub
from helpers import ROOT

import ornstein as orn


def names_in_the_stub():
    tree = ast.parse((ROOT / "src" / "ornstein" / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports for alias in node.names}


def test_every_name_is_there():
    assert all(getattr(orn, name) is not None for name in orn.__all__)
    assert dir(orn) == orn.__all__


def test_the_stub_says_the_same_as_the_table():
    found = names_in_the_stub()
    assert {name: found[name] for name in orn._WHERE} == {
        name: f"ornstein.{where}" for name, where in orn._WHERE.items()
    }
    assert set(found) == {*orn._WHERE, *orn._NAMESPACES, "__version__"}


def test_the_stub_is_current():
    assert generated.is_current(stub.PATH, stub.stub(stub.places())), "run make format"


POSITIONS = {  # of version 0.1: what is added comes after them, or by name alone
    "Dynamics": "preconditioner batch_size scheme damping injected window gap output_map schedule"
    " control_variates sampler notes",
    "Curvature": "mode hessian noise n_data noise_response prior_hessian names approximate"
    " hessian_product",
    "Model": "log_likelihood data log_prior init predict hyperparameters",
    "glm": "X y family prior_precision noise_scale intercept weights offset intercept_precision"
    " classes",
    "Posterior": "draws names layout settings dynamics curvature prediction",
    "sample": "model sampler",
    "measure": "model structure",
    "em": "model hyperparameters sampler recipe batch_size seed",
}


@pytest.mark.parametrize("name", POSITIONS)
def test_arguments_by_position_mean_what_they_meant(name):
    wanted = POSITIONS[name].split()
    assert list(inspect.signature(getattr(orn, name)).parameters)[: len(wanted)] == wanted


def test_no_room_hides_a_public_name():
    """A submodule that is imported becomes an attribute of the package: it must not bear a public
    name.
    """
    rooms = {path.stem for path in (ROOT / "src" / "ornstein").iterdir()}
    assert not rooms & set(orn._WHERE)


def test_functions_that_mention_the_library_can_be_pickled():
    """As joblib, Dask, Ray and Spark do with the functions of a script or notebook."""
    back = cloudpickle.loads(cloudpickle.dumps(lambda: orn.sample))
    assert back() is orn.sample
