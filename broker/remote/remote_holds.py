"""Holds (`broker/ports/holds.py`) of a coordinator in another process."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from broker.codec.held_logs import decode_hold, encode_removal, encode_start
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName
from broker.model.retention.holders import (
    Hold,
    Removal,
)
from broker.model.retention.policy import LogStart
from broker.remote.calls import Caller
from broker.remote.remote_coordinator import SERVICE
from schemas.generated.tidemark import v1

ANSWER_S = 5.0


class RemoteHolds:
    """One call each, not retried: the next round of truncation asks again."""

    def __init__(self, calls: Caller) -> None:
        self._calls = calls

    async def of(
        self, starts: Mapping[PChannelName, LogStart]
    ) -> Mapping[PChannelName, Sequence[Hold]]:
        """See Holds."""
        request = v1.FindHoldsRequest(starts=[encode_start(*it) for it in starts.items()])
        answer = await self._calls.call(
            SERVICE + "FindHolds", request, v1.FindHoldsResponse, deadline_s=ANSWER_S
        )
        found = defaultdict[PChannelName, list[Hold]](list)
        try:
            for it in answer.holds:
                found[PChannelName(it.pchannel)].append(decode_hold(it))
        except ValueError as error:
            # Of a newer coordinator: what an unknown kind holds is not known, so nothing is.
            raise Refused(StreamingCode.INNER, f"the coordinator named a hold: {error}") from error
        return found

    async def allow(self, removals: Mapping[PChannelName, Removal]) -> Collection[PChannelName]:
        """See Holds."""
        request = v1.AllowRemovalsRequest(removals=[encode_removal(*it) for it in removals.items()])
        answer = await self._calls.call(
            SERVICE + "AllowRemovals", request, v1.AllowRemovalsResponse, deadline_s=ANSWER_S
        )
        return [PChannelName(it) for it in answer.pchannels]
