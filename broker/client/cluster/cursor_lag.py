"""How many messages and bytes a cursor is behind, on each of its channels.

Asked of the owners, which count record heads; no message is sent. They count only the beginning of
a long backlog; the rest is estimated from the number of ids behind it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import anyio

from broker.client.cluster.offsets import Offsets
from broker.client.cluster.service import ServiceCalls
from broker.client.errors import TidemarkError
from broker.client.net.connection import Connection
from broker.client.net.owners import Owners
from broker.core.naming import pchannel_of
from broker.model.ids import PChannelName, TimeTick
from broker.model.named_cursor import ChannelLag, CursorView
from schemas.generated.tidemark import v1

ROWS_MAX: Final = 100_000
BYTES_MAX: Final = 16 * 1024 * 1024
"""A pchannel is counted up to so many rows or bytes, so that a look at the cursors stays cheap."""
LAG_S: Final = 3.0
"""For all of one cursor; what is not known by then is left out."""

Lags = dict[str, ChannelLag]


class CursorLags:
    """Never raises TidemarkError: a channel without an owner has no lag to show."""

    def __init__(self, owners: Owners, offsets: Offsets, *, deadline_s: float) -> None:
        self._owners = owners
        self._offsets = offsets
        self._deadline_s = min(deadline_s, LAG_S)

    async def of(self, view: CursorView) -> Lags:
        """The lag of each channel whose owner answered."""
        until = max(view.closed_ticks.values(), default=TimeTick(0))
        found: Lags = {}
        behind: dict[str, TimeTick] = {}
        for name, at in view.positions.items():
            if at.closed < until:
                behind[name] = at.closed
            else:
                found[name] = ChannelLag(0, 0)
        with anyio.move_on_after(self._deadline_s):
            for afters in _rounds(behind):
                try:
                    found |= await self._measured(afters, until)
                except TidemarkError:
                    continue
        return found

    async def _measured(self, afters: Mapping[str, TimeTick], until: TimeTick) -> Lags:
        async def ask(connection: Connection, names: Sequence[str]) -> v1.MeasureResponse:
            request = v1.MeasureRequest(
                channels=list(names),
                after_ticks=[afters[it] for it in names],
                until_tick=until,
                rows_max=ROWS_MAX,
                bytes_max=BYTES_MAX,
            )
            node = ServiceCalls(connection, "tidemark.v1.Log", deadline_s=self._deadline_s)
            return await node.ask("Measure", request, v1.MeasureResponse)

        answers = [answer for _, answer in await self._owners.ask(list(afters), ask)]
        found: Lags = {}
        for channel in [it for answer in answers for it in answer.channels]:
            rows, size = sum(channel.rows), sum(channel.bytes)
            if channel.exact_tick >= until:
                found[channel.channel] = ChannelLag(rows, size)
            else:
                share = await self._share(channel, afters[channel.channel])
                found[channel.channel] = ChannelLag(round(rows * share), round(size * share), False)
        return found

    async def _share(self, channel: v1.MeasuredChannel, after: TimeTick) -> float:
        """How many times more ids the whole backlog has than the part that was counted."""
        name = channel.channel
        first = await self._offsets.seek(name, after + 1)
        counted = await self._offsets.seek(name, channel.exact_tick + 1) - first
        held = (await self._offsets.describe([name]))[name]
        return max(1.0, (held.next_id - first) / max(1, counted))


def _rounds(behind: Mapping[str, TimeTick]) -> list[dict[str, TimeTick]]:
    """Channels that can be measured together: those of one pchannel need the same tick."""
    ticks: dict[PChannelName, dict[TimeTick, list[str]]] = {}
    for name, after in behind.items():
        ticks.setdefault(pchannel_of(name), {}).setdefault(after, []).append(name)
    rounds: list[dict[str, TimeTick]] = []
    for each in ticks.values():
        for number, (after, names) in enumerate(each.items()):
            if number == len(rounds):
                rounds.append({})
            rounds[number] |= dict.fromkeys(names, after)
    return rounds
