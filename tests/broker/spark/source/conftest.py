"""The brokers here are in the test's own process, which a busy machine may stop for seconds."""

import pytest

from broker.spark import gateway


@pytest.fixture(autouse=True)
def patient_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """How soon a server that was never reached is given up is tested one level higher."""
    monkeypatch.setattr(gateway, "FIRST_ANSWER_S", 60.0)
