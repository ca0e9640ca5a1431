"""What the chaos tests share."""

import pytest


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """How often something is killed: `--rounds`."""
    count: int = request.config.getoption("--rounds")
    return count
