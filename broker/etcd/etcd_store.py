"""The metadata store on an etcd cluster: each write is one transaction, applied once or never.

Why etcd's own protocol over our gRPC stack, and not aetcd (1.0, 2026), the only asyncio client in
Python that is kept: it asks one endpoint, repeats nothing, and would bring a second gRPC stack.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Self, TypeVar

import anyio

from broker.etcd.etcd_errors import (
    LeaseGone,
    NoSpace,
    RevisionCompacted,
    Unanswered,
)
from broker.etcd.leased_keys import LeasedKeys
from broker.etcd.members import CALL_S, Members, Tries
from broker.etcd.place import EtcdPlace
from broker.etcd.recorded_log import RecordedLog
from broker.etcd.requests import (
    RANGE,
    TXN,
    Keys,
    at_revision,
    found_in,
    read_request,
    repeatable_request,
    write_request,
)
from broker.etcd.store_beat import StoreBeat
from broker.etcd.store_record import StoreRecord, no_record, went_back
from broker.etcd.told_changes import ToldChanges
from broker.etcd.write_places import WritePlace, Writers
from broker.ports.meta import Conflict, MetaEntry, MetaError, WriteUnconfirmed
from broker.ports.meta_writes import check_list, check_write
from broker.transport.tls import ClientTls
from schemas.generated.etcdserverpb import (
    KeyValue,
    PutRequest,
    RangeRequest,
    RangeResponse,
    RequestOp,
    TxnRequest,
    TxnResponse,
)

PRESENT_MAX = 200
"""Processes that are told of."""
PAGE = 100
"""Keys of one request: etcd takes 128 operations, and the largest values make 100 MiB."""
READS_MAX = 64
"""Reads under way; more wait."""
ATTEMPTS_MAX = 3
"""Of a list whose revision was compacted away, of a write whose lease has ended, of an opening."""

T = TypeVar("T")


class EtcdMetaStore:
    """A MetaStore (`broker/ports/meta.py`) below a prefix; made by `open`, ended by `close`.

    Also an async context manager that closes. One object belongs to one event loop.
    """

    def __init__(self, members: Members) -> None:
        self._members = members
        self._keys = Keys(members.place.prefix)
        self._writers = Writers(members, self._keys)
        self._told = ToldChanges(members)
        self._beat = StoreBeat(members, self._keys.beat)
        self.log = RecordedLog(members, self._keys.store)
        self._reads = anyio.Semaphore(READS_MAX)
        self._numbers = count(1)
        self._closed = False
        self.owner = ""
        """The token in the record of the store."""

    @classmethod
    async def open(  # noqa: PLR0913 - each is a choice of its own
        cls,
        place: EtcdPlace,
        *,
        owner: str,
        tls: ClientTls | None = None,
        password: Callable[[], str] = str,
        revision: int = 0,
        beaten: int = 0,
        log: str = "",
        joins: bool = False,
        call_s: float = CALL_S,
    ) -> Self:
        """Open the store; make it when there is none below the prefix, and none was seen before.

        `owner`: a token of whoever may open it. `log`: where the log is, if outside of the data
        folder. `joins`: take over the token of a store whose log is there, too. `password`: read at
        each login of the place's user. `revision`, `beaten`: the highest ones that an earlier
        opening has seen. `call_s`: the longest time for a call. Raises StoreOwned when it has
        another owner or another log, StoreWentBack when it is older than that, or not there;
        MetaError. Nothing stays open after an error.
        """
        store = cls(Members(place, tls, password, call_s))
        try:
            await store._prepare(owner, revision, beaten, log, joins=joins)
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def revision(self) -> int:
        """The highest revision of etcd seen so far."""
        return self._members.revision

    @property
    def beaten(self) -> int:
        """The newest revision of a `beat` of any process seen so far."""
        return self._beat.seen

    async def beat(self) -> None:
        """Look whether etcd still has what was written. Raises StoreWentBack, MetaError."""
        await self._beat.beat()

    def announced(self, name: str, value: bytes) -> LeasedKeys:
        """Say that a process runs, while the block runs and its `keep`; for `present`."""
        return LeasedKeys(self._members, {self._keys.present + name.encode(): value})

    async def present(self) -> Mapping[str, bytes]:
        """What the processes that run have announced, by name. A killed one stays for a while."""
        start, end = self._keys.all_present
        found = await self._read(lambda: self._pages(start, end, PRESENT_MAX))
        return {it.key.removeprefix(start).decode(): it.value for it in found}

    async def present_changed(self, since: int | None, wait_s: float) -> int:
        """As `changed`, of what `present` tells."""
        self._check_open()
        return await self._told.changed(*self._keys.all_present, since, wait_s)

    async def changed(self, prefix: str, since: int | None, *, wait_s: float) -> int:
        """Told by etcd."""
        self._check_open()
        return await self._told.changed(*self._keys.range_of(prefix, ""), since, wait_s)

    async def get(self, key: str) -> MetaEntry | None:
        return (await self.get_many([key]))[0]

    async def get_many(self, keys: Sequence[str]) -> Sequence[MetaEntry | None]:
        """See ReadsTogether (`broker/ports/meta.py`)."""
        encoded = [self._keys.encoded(key) for key in keys]

        async def read() -> list[MetaEntry | None]:
            found: list[tuple[bytes, int]] = []
            for start in range(0, len(encoded), PAGE):
                request = read_request(encoded[start : start + PAGE])
                found += found_in(await self._members.answered(TXN, request, TxnResponse))
            return [MetaEntry(value, at) if at else None for value, at in found]

        return await self._read(read)

    async def list(
        self, prefix: str, *, limit: int, after: str = ""
    ) -> Sequence[tuple[str, MetaEntry]]:
        check_list(limit)
        start, end = self._keys.range_of(prefix, after)

        async def read() -> list[tuple[str, MetaEntry]]:
            for _ in range(ATTEMPTS_MAX):
                try:
                    found = await self._pages(start, end, limit)
                except RevisionCompacted:
                    continue  # between two pages: the newer state is as good
                return [
                    (self._keys.decoded(it.key), MetaEntry(it.value, it.mod_revision))
                    for it in found
                ]
            raise MetaError(
                f"{self._members.place}: etcd compacted its revisions during each of"
                f" {ATTEMPTS_MAX} reads of {prefix!r}; compact less often"
            )

        return await self._read(read)

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        """Raises WriteUnconfirmed, too (`broker/ports/meta.py`)."""
        expect = dict(sorted((expect or {}).items()))
        check_write(puts, deletes, expect)
        self._check_open()
        put = {self._keys.encoded(key): value for key, value in puts.items()}
        gone = [self._keys.encoded(key) for key in deletes]
        wanted = {self._keys.encoded(key): revision for key, revision in expect.items()}
        number = b"%d" % next(self._numbers)
        for _ in range(ATTEMPTS_MAX):
            async with self._writers.place() as place:
                mark = place.mark(number)
                request = write_request(put, gone, wanted, (place.key, place.revision), mark)
                revision = await self._written(request, place, number, expect)
            if revision:
                return revision
        raise MetaError(
            f"{self._members.place}: the places of writes vanished {ATTEMPTS_MAX} times; does"
            " somebody delete keys or leases below the prefix?"
        )

    def repeatable(self, puts: Mapping[str, bytes], expect: Mapping[str, int]) -> bytes:
        """A write as etcd's message, for `LastWrite`: repeating it must do no harm."""
        put = {self._keys.encoded(key): value for key, value in puts.items()}
        wanted = {self._keys.encoded(key): revision for key, revision in expect.items()}
        return bytes(repeatable_request(put, wanted))

    async def close(self) -> None:
        """Idempotent; takes a second at most. Calls that still wait raise MetaError."""
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            await self._writers.close()
        self._members.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _written(
        self, request: TxnRequest, place: WritePlace, number: bytes, expect: Mapping[str, int]
    ) -> int:
        """The revision of the write; 0 when it was not applied because its place was gone."""
        tries = Tries()
        place.sure = False  # also if this task is cancelled
        try:
            answer = await self._members.call(TXN, request, TxnResponse, tries=tries)
        except Unanswered as failure:
            place.sure = not failure.sent
            if place.sure:
                raise MetaError(str(failure)) from failure
            raise _unconfirmed(failure) from failure
        except NoSpace as full:
            return await self._although_full(full, place, number, tries)
        except LeaseGone as gone:
            self._writers.forget(place.lease)
            if tries.unsure:
                raise _unconfirmed(gone) from gone
            return 0
        except MetaError as refused:
            place.sure = not tries.unsure
            if tries.unsure:
                raise _unconfirmed(refused) from refused
            raise
        if answer.succeeded:
            at = answer.header.revision if answer.header is not None else 0
        else:
            at = self._not_applied(answer, place, number, expect, tries)
        if at:
            place.sure, place.revision = True, at
        return at

    def _not_applied(
        self,
        answer: TxnResponse,
        place: WritePlace,
        number: bytes,
        expect: Mapping[str, int],
        tries: Tries,
    ) -> int:
        """The revision of an earlier attempt that was applied; 0 for a lost place; or Conflict."""
        (mark, at), *found = found_in(answer)
        if at and mark == number:
            return at
        if at != place.revision:
            self._writers.forget(place.lease)
            if tries.unsure:
                raise _unconfirmed(MetaError("the place of the write is gone"))
            return 0
        pairs = zip(expect.items(), found, strict=True)
        conflicts = [
            Conflict(key, expected, actual)
            for (key, expected), (_, actual) in pairs
            if actual != expected
        ]
        if not conflicts:
            raise MetaError(f"{self._members.place}: etcd refused a write that had all it expected")
        # An earlier attempt may still come. A revision does not return, but a key may vanish again.
        place.sure = not tries.unsure or any(each.expected for each in conflicts)
        if not place.sure:
            raise _unconfirmed(conflicts[0])
        raise conflicts[0]

    async def _although_full(
        self, full: NoSpace, place: WritePlace, number: bytes, tries: Tries
    ) -> int:
        """etcd notices when it applies a write that its database is full, and applies it."""
        try:
            answer = await self._members.call(RANGE, RangeRequest(key=place.key), RangeResponse)
        except (MetaError, Unanswered) as error:
            raise _unconfirmed(full) from error
        for entry in answer.kvs:
            if entry.value == number:
                place.sure, place.revision = True, entry.mod_revision
                return entry.mod_revision
        place.sure = not tries.unsure
        if tries.unsure:
            raise _unconfirmed(full) from full
        raise full

    async def _read(self, read: Callable[[], Awaitable[T]]) -> T:
        """Read, after it is decided what earlier writes of this process have done."""
        self._check_open()
        async with self._reads:
            await self._writers.decide()
            return await read()

    async def _pages(self, start: bytes, end: bytes, limit: int) -> Sequence[KeyValue]:
        """Entries of one revision."""
        found: list[KeyValue] = []
        revision = 0
        while start < end and len(found) < limit:
            size = min(PAGE, limit - len(found))
            request = RangeRequest(key=start, range_end=end, limit=size, revision=revision)
            page = await self._members.answered(RANGE, request, RangeResponse)
            found += page.kvs
            if not page.more or not page.kvs:
                break
            start = page.kvs[-1].key + b"\0"
            revision = revision or (page.header.revision if page.header is not None else 0)
        return found

    async def _prepare(self, owner: str, seen: int, beaten: int, log: str, *, joins: bool) -> None:
        """Check the record of the store, and bring it up to date."""
        place = self._members.place
        for _ in range(ATTEMPTS_MAX):
            answer = await self._members.answered(
                RANGE, RangeRequest(key=self._keys.store), RangeResponse
            )
            revision = answer.header.revision if answer.header is not None else 0
            now = StoreRecord(owner, self._members.cluster_id, revision, log)
            before = answer.kvs[0] if answer.kvs else None
            if before is not None:
                found = StoreRecord.decoded(before.value, place)
                if joins:
                    now = replace(now, owner=found.joined(log, place))
                found.judge(now, place)
                now = replace(now, log=log or found.log)
            elif seen and not await self._has_beat():
                # A stray endpoint may be the only one that answers: nothing is written there. With
                # the beat the record alone was deleted, as the texts say to accept a backup.
                raise no_record(place)
            if revision < seen:
                raise went_back(place, revision, seen)
            await self._beat.beat(beaten)
            put = PutRequest(key=self._keys.store, value=now.encoded())
            request = TxnRequest(
                compare=[at_revision(put.key, before.mod_revision if before else 0)],
                success=[RequestOp(request_put=put)],
            )
            # Once more when another process was first; this is also how a lost answer ends.
            if (await self._members.answered(TXN, request, TxnResponse)).succeeded:
                break
        # Else each time somebody who may open it was first, so the record is as new.
        self.owner = now.owner

    async def _has_beat(self) -> bool:
        answer = await self._members.answered(
            RANGE, RangeRequest(key=self._keys.beat), RangeResponse
        )
        return bool(answer.kvs)

    def _check_open(self) -> None:
        if self._closed:
            raise MetaError(f"{self._members.place}: the metadata store is closed")


def _unconfirmed(error: Exception) -> WriteUnconfirmed:
    return WriteUnconfirmed(f"{error}; the write may have taken effect")
