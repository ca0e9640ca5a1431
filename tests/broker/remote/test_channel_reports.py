"""Reports to a coordinator that does not answer at once."""

from itertools import pairwise
from typing import Any

import anyio

from actors import Envelope
from broker.model.ids import NodeId
from broker.ports.nodes import Unreachable
from broker.remote.calls import Calls
from broker.remote.channel_reports import PAUSE_S, TRIES_MAX, ChannelReporter
from schemas.generated.tidemark import v1

EVENT = v1.ChannelEvent(name="by-dev-rootcoord-dml_0", term=3, serves=True)


class RestartingCoordinator(Calls):
    """Answers after so many calls were refused; notes when each came."""

    def __init__(self, refusals: int) -> None:
        self.times_s: list[float] = []
        self._refusals = refusals

    async def call(self, path: str, request: Any, answer: type[Any], *, deadline_s: float) -> Any:
        self.times_s.append(anyio.current_time())
        if len(self.times_s) <= self._refusals:
            raise Unreachable("nothing listens", absent=True)
        return answer()


async def test_the_next_try_comes_after_an_ever_longer_pause() -> None:
    coordinator = RestartingCoordinator(refusals=3)
    reporter = ChannelReporter(NodeId(1), coordinator)
    await reporter.receive([Envelope(EVENT)])
    assert reporter.statistics() == {"reports": 1, "lost": 0}
    pauses = [later - earlier for earlier, later in pairwise(coordinator.times_s)]
    assert all(pause >= PAUSE_S * 2**it for it, pause in enumerate(pauses))


async def test_a_report_that_nobody_takes_is_counted_as_lost() -> None:
    coordinator = RestartingCoordinator(refusals=TRIES_MAX)
    reporter = ChannelReporter(NodeId(1), coordinator)
    await reporter.receive([Envelope(EVENT)])
    assert reporter.statistics() == {"reports": 0, "lost": 1}
    assert len(coordinator.times_s) == TRIES_MAX
