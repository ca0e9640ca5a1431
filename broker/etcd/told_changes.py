"""Waits for changes: etcd tells of them, so that nobody has to ask again and again."""

from broker.etcd.etcd_errors import EtcdRefused, StaleToken, Unanswered
from broker.etcd.members import Members
from broker.etcd.requests import RANGE, WATCH
from broker.ports.meta import MetaError
from schemas.generated.etcdserverpb import (
    RangeRequest,
    RangeResponse,
    WatchCreateRequest,
    WatchRequest,
    WatchResponse,
)


class ToldChanges:
    """One wait is one stream, which ends with it; `wait_s` bounds what a silent member costs."""

    def __init__(self, members: Members) -> None:
        self._members = members

    async def changed(self, start: bytes, end: bytes, since: int | None, wait_s: float) -> int:
        """As `MetaStore.changed`, of the keys from `start` up to `end`, without it."""
        try:
            if since is None:
                return await self._revision(start)
            create = WatchCreateRequest(key=start, range_end=end, start_revision=since + 1)
            request = WatchRequest(create_request=create)
            found = await self._members.follow(
                WATCH, request, WatchResponse, self._change, wait_s=wait_s
            )
        except Unanswered as failure:
            raise MetaError(str(failure)) from failure
        return since if found is None else found

    async def _revision(self, key: bytes) -> int:
        request = RangeRequest(key=key, keys_only=True)
        await self._members.call(RANGE, request, RangeResponse)
        return self._members.revision

    def _change(self, told: WatchResponse) -> int | None:
        """The revision of a change; None of what is none. Raises EtcdRefused, StaleToken."""
        revision = told.header.revision if told.header is not None else 0
        if told.canceled and not told.compact_revision:
            cause = f"{self._members.place}: etcd ended a watch: {told.cancel_reason}"
            # Of a token that it does not know it says no more than "permission denied".
            raise StaleToken(cause) if self._members.place.user else EtcdRefused(cause)
        # What was compacted away before it was told: something may have changed.
        if told.events or told.canceled:
            return max(revision, told.compact_revision)
        return None
