"""Takes cuts: asks the owners of all channels for one tick that is closed on each of them.

Next: broker/edge/tidemark/time_sync_service.py
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import anyio

from broker.client.cluster.retrying import retried
from broker.client.cluster.service import ServiceCalls
from broker.client.cluster.targets import Targets
from broker.client.errors import DeadlineExceeded, InvalidArgument, ServerFailed, TidemarkError
from broker.client.net.connection import Connection
from broker.client.net.owners import Owners
from broker.model.cut import Cut
from broker.model.ids import MessageId, TimeTick
from schemas.generated.tidemark import v1

_SERVICE = "tidemark.v1.TimeSync"
RELEASE_S = 2.0

T = TypeVar("T")


class Cuts:
    """Takes cuts within a deadline; raises what `broker.client.errors` has."""

    def __init__(
        self, connection: Connection, owners: Owners, targets: Targets, *, deadline_s: float
    ) -> None:
        self._calls = ServiceCalls(connection, _SERVICE, deadline_s=deadline_s)
        self._owners = owners
        self._targets = targets
        self._deadline_s = deadline_s

    async def cut(
        self,
        targets: str | Iterable[str],
        *,
        tick: int | None = None,
        whole_broadcasts: bool = False,
    ) -> Cut:
        """A tick that is closed on all vchannels of the targets: one consistent place to stop.

            cut = await log.cut("flights")
            await process(log.read("flights", until=cut))  # then `start=cut` for the rest

        Everything acknowledged on these vchannels before the call is inside. `tick`: take the cut
        at this tick. `whole_broadcasts`: the cut has, of each broadcast and each staged batch, all
        of it on these vchannels or nothing; new ones wait while it is taken. A broadcast in
        quarantine is not waited for.

        Raises InvalidArgument without targets or for a tick from the future, NoSuchCollection, and
        retriable errors while a pchannel has no owner.
        """
        # One for all of it: the look-up, and each of two rounds of calls, may take that long.
        until_s = anyio.current_time() + self._deadline_s
        channels = (await self._targets.resolve_all(targets)).vchannels
        if not channels:
            raise InvalidArgument("a cut needs at least one channel; name a collection or vchannel")
        left_s = round(max(0.0, until_s - anyio.current_time()), 1)
        if whole_broadcasts:
            if tick is not None:
                raise InvalidArgument(
                    "a cut with whole_broadcasts chooses its tick; do not give one"
                )
            return (await retried(lambda: self._take_held(channels, _nothing), left_s))[1]
        with anyio.move_on_after(left_s):
            return await self._take(channels, tick or 0)
        raise DeadlineExceeded(f"no cut within {self._deadline_s:g} s; try again")

    async def cut_cluster(
        self, pchannels: Sequence[str], read: Callable[[], Awaitable[T]]
    ) -> tuple[T, Cut]:
        """A cut of whole pchannels, and what `read` returned just before its tick was chosen.

        From the start of `read` to the cut no broadcast and no commit of a batch appends anything,
        not even on one vchannel. So what `read` sees of them agrees with the log up to the cut. It
        may be called again, and has to return within 2 s. Raises what `cut` does.
        """
        return await retried(
            lambda: self._take_held(pchannels, read, exclusive=True), self._deadline_s
        )

    async def _take(self, channels: Sequence[str], tick: int) -> Cut:
        # Each node chooses a tick that is not below anything it has acknowledged (unless `tick`
        # is given). The largest becomes the tick of the cut, and the other nodes close it too.
        cuts = await self._cuts(channels, tick)
        agreed = max(cut.tick for cut in cuts)
        behind = [name for cut in cuts if cut.tick != agreed for name in cut.ends]
        if behind:
            # Only nodes behind are asked again: where a closed tick lies does not change.
            cuts = [cut for cut in cuts if cut.tick == agreed]
            cuts += await self._cuts(behind, agreed)
        ends = {name: end for cut in cuts for name, end in cut.ends.items()}
        return Cut(agreed, {name: ends[name] for name in channels})

    async def _take_held(
        self, channels: Sequence[str], read: Callable[[], Awaitable[T]], *, exclusive: bool = False
    ) -> tuple[T, Cut]:
        # A client that is closed meanwhile waits until the hold is released.
        with self._calls.busy():
            request = v1.HoldBroadcastsRequest(channels=list(channels), exclusive=exclusive)
            held = await self._calls.ask("HoldBroadcasts", request, v1.HoldBroadcastsResponse)
            lasted = False
            try:
                found = await read()
                cut = await self._take(channels, 0)
            finally:
                # Shielded: a cancelled cut must not keep broadcasts waiting for the hold's end.
                with anyio.move_on_after(RELEASE_S, shield=True):
                    lasted = await self._release(held.hold_id)
            if not lasted:
                # The hold has expired: a broadcast may have landed on some of the channels only.
                raise ServerFailed(
                    "the cut took longer than broadcasts can be held back; try again"
                )
            return found, cut

    async def _release(self, hold_id: int) -> bool:
        """Whether the hold was still in force. One that cannot be released expires."""
        request = v1.ReleaseBroadcastsRequest(hold_id=hold_id)
        try:
            answer = await self._calls.ask(
                "ReleaseBroadcasts", request, v1.ReleaseBroadcastsResponse, deadline_s=RELEASE_S
            )
        except TidemarkError:
            return False
        return answer.lasted

    async def _cuts(self, channels: Sequence[str], tick: int) -> list[Cut]:
        """One cut from each node that serves some of the channels."""

        async def ask(connection: Connection, names: Sequence[str]) -> Cut:
            node = ServiceCalls(connection, _SERVICE, deadline_s=self._deadline_s)
            request = v1.CutRequest(channels=list(names), time_tick=tick)
            answer = await node.ask("Cut", request, v1.CutResponse)
            ends = {it.channel: MessageId(it.end_id) for it in answer.ends}
            return Cut(TimeTick(answer.time_tick), ends)

        return [cut for _, cut in await self._owners.ask(channels, ask)]


async def _nothing() -> None:
    """A plain cut reads nothing under its hold."""
