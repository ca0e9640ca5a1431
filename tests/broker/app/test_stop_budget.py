"""What a stop may wait for, added up: it is within the time that is promised, on any machine."""

from pathlib import Path
from typing import Any

import pytest

from actors import System
from broker.app import running_process
from broker.edge.server import EdgeServer
from tests.local_broker import local_broker

STOP_S_MAX = 5.0
"""Of a stop by SIGTERM, as the setting `drain_s` promises."""
EXIT_S = 1.0
"""Of that, for what is not a wait: files that are closed, and an interpreter that ends."""


async def test_all_waits_of_a_stop_are_shares_of_its_time_and_leave_some_for_the_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits_s: list[float] = []
    stop = EdgeServer.stop

    class Noted(System):
        """Its deadline counts twice: to stop in order, and then to kill."""

        def __init__(self, *given: Any, stop_deadline_s: float, **more: Any) -> None:
            waits_s.append(2 * stop_deadline_s)
            super().__init__(*given, stop_deadline_s=stop_deadline_s, **more)

    async def noted(edge: EdgeServer, *, deadline_s: float) -> None:
        waits_s.append(deadline_s)
        await stop(edge, deadline_s=deadline_s)

    monkeypatch.setattr(running_process, "System", Noted)
    monkeypatch.setattr(EdgeServer, "stop", noted)
    async with local_broker(tmp_path, pchannels=1) as broker:
        drain_s = broker.settings.now.drain_s
    assert len(waits_s) == 2
    assert sum(waits_s) <= drain_s <= STOP_S_MAX - EXIT_S
