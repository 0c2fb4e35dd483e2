"""Settings and data shared by the tests."""

from __future__ import annotations

import pytest
from helpers import wine


@pytest.fixture(scope="session")
def wine_data():
    return wine()
