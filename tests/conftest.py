"""Settings and data shared by the tests."""

from __future__ import annotations

import pytest

# Hooks of pytest: under CI a test may skip only for a reason on their list.
from allowed_skips import (  # noqa: F401
    pytest_collectreport,
    pytest_runtest_logreport,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
)
from helpers import wine


@pytest.fixture(scope="session")
def wine_data():
    return wine()
