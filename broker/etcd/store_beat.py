"""A key that is written again and again, so that an etcd restored from a backup is noticed.

etcd's own revision does not always show it: `etcdutl snapshot restore --bump-revision` makes it
higher than it ever was. But each key keeps the revision that it has in the backup.
"""

from broker.etcd.members import Members
from broker.etcd.requests import TXN, at_revision, found_in
from broker.etcd.store_record import lost_beat
from schemas.generated.etcdserverpb import (
    PutRequest,
    RangeRequest,
    RequestOp,
    TxnRequest,
    TxnResponse,
)


class StoreBeat:
    """All processes of a store write the same key. `seen`: the newest revision of it seen here."""

    def __init__(self, members: Members, key: bytes) -> None:
        self._members = members
        self._key = key
        self.seen = 0

    async def beat(self, least: int = 0) -> None:
        """Write the key, unless another process has written since.

        Raises StoreWentBack, as then each later call does, when its revision is below `seen` or
        below `least`, that of an earlier process; MetaError.
        """
        seen = max(self.seen, least)
        # Expected exactly there: it writes nothing into a restored store, where that would look
        # new, and a copy of the request that comes late does nothing either.
        request = TxnRequest(
            compare=[at_revision(self._key, seen)],
            success=[RequestOp(request_put=PutRequest(key=self._key))],
            failure=[RequestOp(request_range=RangeRequest(key=self._key))],
        )
        answer = await self._members.answered(TXN, request, TxnResponse)
        if answer.succeeded:
            self.seen = answer.header.revision if answer.header is not None else seen
            return
        # Written by another process, or by an attempt of this call whose answer was lost.
        ((_, at),) = found_in(answer)
        if at < seen:
            raise self._members.refused(lost_beat(self._members.place, at, seen))
        self.seen = at
