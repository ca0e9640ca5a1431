"""What a stop may wait for, added up: it is within the time that is promised, on any machine."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from actors import System
from broker.app import running_process
from broker.app.running_process import HAND_OFF_SHARE
from broker.edge.server import EdgeServer
from tests.local_broker import local_broker

STOP_S_MAX = 5.0
"""Of a stop by SIGTERM, as the setting `drain_s` promises."""
ROUNDED_S = 1e-6
EXIT_S = 1.0
"""Of that, for what is not a wait: files that are closed, and an interpreter that ends."""


@pytest.mark.parametrize("hands_over", ["at once", "until its time is over"])
async def test_all_waits_of_a_stop_are_shares_of_its_time_and_leave_some_for_the_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hands_over: str
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

    async def hand_off(parts: object, system: System, deadline_s: float) -> None:
        given_s = 0.0 if hands_over == "at once" else deadline_s
        began_s = anyio.current_time()
        await anyio.sleep(given_s)
        waits_s.append(anyio.current_time() - began_s)

    monkeypatch.setattr(running_process, "System", Noted)
    monkeypatch.setattr(EdgeServer, "stop", noted)
    monkeypatch.setattr("broker.app.run_single._BrokerParts.hand_off", hand_off)
    async with local_broker(tmp_path, pchannels=1) as broker:
        drain_s = broker.settings.now.drain_s
    tree_s, handing_s, edge_s = waits_s
    assert edge_s > 0
    assert tree_s + edge_s + min(handing_s, drain_s * HAND_OFF_SHARE) <= drain_s + ROUNDED_S
    assert drain_s <= STOP_S_MAX - EXIT_S
