"""Switches the log of a cluster between segment files and Kafka, while it serves."""

from dataclasses import dataclass
from typing import Final

from broker.client.cluster.service import ServiceCalls
from schemas.generated.tidemark import v1

SERVICE: Final = "tidemark.v1.Wal"
ALTER_S: Final = 60.0
"""The coordinator asks a Kafka that may be away."""


@dataclass(frozen=True, slots=True)
class ChannelSwitched:
    """How far a pchannel is: ids below `copied_id` are in the copy, below `checked_id` compared.

    `next_id`: of the log. `switched`: it takes appends in the target. `ended`: nothing is left to
    do. `trouble`: why it does not go on, or "".
    """

    pchannel: str
    copied_id: int
    checked_id: int
    next_id: int
    switched: bool
    ended: bool
    trouble: str


@dataclass(frozen=True, slots=True)
class WalStatus:
    """Where the log is, "" for segment files, and how far the newest switch of it is.

    `stage`: copying, switching, dropping, done, aborting or aborted; "": it was never switched.
    """

    place: str
    stage: str
    source: str
    target: str
    leaves_history: bool
    channels: tuple[ChannelSwitched, ...]

    @property
    def under_way(self) -> bool:
        """Whether something is left to do."""
        return self.stage not in ("", "done", "aborted")


class WalCalls:
    """Asks the coordinator. Every call raises what `broker.client.errors` has."""

    def __init__(self, calls: ServiceCalls) -> None:
        self._calls = calls

    async def alter(self, target: str, *, leaves_history: bool) -> WalStatus:
        """See `Admin.alter_wal`."""
        request = v1.AlterWalRequest(target=target, leaves_history=leaves_history)
        answer = await self._calls.ask("Alter", request, v1.WalStatusResponse, deadline_s=ALTER_S)
        return _status(answer)

    async def status(self) -> WalStatus:
        """See `Admin.wal_status`."""
        return _status(await self._calls.ask("Status", v1.WalStatusRequest(), v1.WalStatusResponse))

    async def abort(self) -> WalStatus:
        """See `Admin.abort_wal`."""
        return _status(await self._calls.ask("Abort", v1.AbortWalRequest(), v1.WalStatusResponse))


def _status(it: v1.WalStatusResponse) -> WalStatus:
    channels = tuple(
        ChannelSwitched(
            each.pchannel,
            each.copied_id,
            each.checked_id,
            each.next_id,
            each.switched,
            each.ended,
            each.trouble,
        )
        for each in it.channels
    )
    return WalStatus(it.place, it.stage, it.source, it.target, it.leaves_history, channels)
