"""Holds collections and identities to their limits, on every stream of appends and reads.

Without limits a stream does nothing for it but look at one flag. A stream that is over a limit
waits; HTTP/2's window then makes its peer wait. When many streams share a limit, or one batch was
as large as many seconds of it, the wait would be long: appends are refused then, and the refusal
says when to come again.
"""

from asyncio import get_running_loop
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import anyio

from broker.core.naming import VCHANNEL_NAME_LENGTH_MAX
from broker.core.pressure.limit_rules import (
    LimitRules,
    Scope,
    Subject,
    name_without_collection,
)
from broker.core.pressure.rate_book import Direction, RateBook
from broker.core.pressure.token_bucket import Exhausted, Taken
from broker.core.pressure.txn_places import TxnPlace, TxnPlaces
from broker.edge.rpc.stream_meters import EdgeMeters
from broker.model.failure import ComeLater, Refusal, Refused, StreamingCode, Throttled
from broker.ports.row_schemas import RowSchemas, Shard

APPEND_WAIT_S_MAX: Final = 5.0
CALL_WAIT_S_MAX: Final = 1.0
"""Less than that of appends: a flood of calls that wait is a flood of open streams."""
LOOK_S: Final = 1.0
"""A reader that waits looks so often whether it still has to."""
NAMES_MAX: Final = 16_384
NAME_S: Final = 10.0
"""After this the name of a vchannel's collection is looked up again: it may have a new one."""


class Quotas:
    """One for a server."""

    def __init__(self, schemas: RowSchemas, meters: EdgeMeters | None = None) -> None:
        self._schemas = schemas
        self._meters = meters or EdgeMeters()
        self._book = RateBook()
        self._streams: Counter[str] = Counter()
        self._txns = TxnPlaces()
        self._names: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self.limited = False
        """Whether there are limits; look at it before you call anything else."""

    def adopt(self, rules: LimitRules) -> None:
        """Other limits from now on."""
        self._book.rules = rules
        self.limited = bool(rules)

    @contextmanager
    def stream_of(self, identity: str) -> Iterator[None]:
        """Count a stream of appends or reads during the block. Raises Refused(16)."""
        limit = self._book.rules.of(Subject(Scope.IDENTITY, identity)).streams
        if limit and self._streams[identity] >= limit:
            self._meters.limit_refused += 1
            raise Refused(
                StreamingCode.RATE_LIMIT_REJECTED,
                f"identity {identity!r} has {limit} streams open, which is its limit; close some,"
                " or raise `streams` in the setting limits",
            )
        self._streams[identity] += 1
        try:
            yield
        finally:
            self._streams[identity] -= 1
            if not self._streams[identity]:
                del self._streams[identity]

    async def begin_call(self, identity: str) -> None:
        """Wait until a call may begin, at most `CALL_WAIT_S_MAX`. Raises ComeLater."""
        subject = Subject(Scope.IDENTITY, identity)
        now_s = get_running_loop().time()
        taken = self._book.take((subject,), Direction.CALL, 0, 1, now_s, CALL_WAIT_S_MAX)
        if isinstance(taken, Exhausted):
            self._meters.limit_refused += 1
            raise ComeLater(_exhausted((subject,), "calls", taken.retry_s))
        if taken.wait_s > 0:
            self._meters.limit_wait_s += taken.wait_s
            await anyio.sleep(taken.wait_s)

    def begin_txn(self, identity: str, freed: int) -> TxnPlace | Refusal | None:
        """The place of a transaction that begins, or why it may not; None without a limit.

        `freed`: how many others its begin ends, whoever began them.
        """
        limit = self._book.rules.of(Subject(Scope.IDENTITY, identity)).transactions
        if not limit:
            return None
        place = self._txns.take(identity, limit + freed)
        if place is not None:
            return place
        self._meters.limit_refused += 1
        return Refusal(
            StreamingCode.RATE_LIMIT_REJECTED,
            f"identity {identity!r} has {limit} transactions open, which is its limit; commit or"
            " roll back some, or raise `transactions` in the setting limits",
        )

    def turns_away(self, identity: str, connections: int) -> str:
        """Why an identity with so many connections gets no further one; "" when it does."""
        limit = self._book.rules.of(Subject(Scope.IDENTITY, identity)).connections
        if not limit or connections < limit:
            return ""
        self._meters.limit_refused += 1
        return (
            f"identity {identity!r} has {connections} connections, and its limit is {limit}; close"
            " some, or raise `connections` in the setting limits"
        )

    async def subjects(self, vchannel: str, identity: str) -> tuple[Subject, Subject]:
        """Whose limits an append to a vchannel, or a read of it, counts against."""
        name = await self._collection(vchannel)
        return Subject(Scope.COLLECTION, name), Subject(Scope.IDENTITY, identity)

    def storage_of(self, subject: Subject) -> int:
        """How many bytes a subject may store; 0: no limit."""
        return self._book.rules.of(subject).storage

    def count_refused(self) -> None:
        """A limit of storage has refused something."""
        self._meters.limit_refused += 1

    def take_in(
        self, subjects: Sequence[Subject], size_bytes: int, messages: int
    ) -> Taken | Throttled:
        """What an append is to wait, at most `APPEND_WAIT_S_MAX`, or its refusal."""
        now_s = get_running_loop().time()
        taken = self._book.take(
            subjects, Direction.IN, size_bytes, messages, now_s, APPEND_WAIT_S_MAX
        )
        if isinstance(taken, Exhausted):
            self._meters.limit_refused += 1
            return _exhausted(subjects, "appends", taken.retry_s)
        self._meters.limit_wait_s += taken.wait_s
        return taken

    def take_copies(self, copies: Mapping[Subject, int], size_bytes: int) -> Taken | Throttled:
        """The same of a message that goes to many vchannels: so many copies for each subject.

        Each subject is asked for all of its copies at once, or the second would wait for the first.
        """
        now_s = get_running_loop().time()
        # Of all, before any is taken from: a refusal takes nothing.
        found = self._book.take(copies, Direction.IN, 0, 0, now_s, APPEND_WAIT_S_MAX)
        if isinstance(found, Exhausted):
            self._meters.limit_refused += 1
            return _exhausted(tuple(copies), "appends", found.retry_s)
        for subject, count in copies.items():
            amounts = count * size_bytes, count
            self._book.take((subject,), Direction.IN, *amounts, now_s, APPEND_WAIT_S_MAX)
        self._meters.limit_wait_s += found.wait_s
        return found

    def in_bytes_s(self, subjects: Sequence[Subject]) -> int:
        """The rate of bytes to which appends are held; 0: only that of messages."""
        return self._book.bytes_s(subjects, Direction.IN)

    async def wait_out(self, subjects: Sequence[Subject], size_bytes: int, messages: int) -> None:
        """Wait until so much may be sent to a reader; no longer than there is such a limit."""
        loop = get_running_loop()
        rules = self._book.rules
        taken = self._book.take(
            subjects, Direction.OUT, size_bytes, messages, loop.time(), float("inf")
        )
        assert isinstance(taken, Taken), taken
        self._meters.limit_wait_s += taken.wait_s
        until_s = loop.time() + taken.wait_s
        # The rules may change meanwhile, and many streams wait: each looks now and then.
        while (left_s := until_s - loop.time()) > 0 and self._book.rules is rules:  # noqa: ASYNC110
            await anyio.sleep(min(left_s, LOOK_S))

    async def _collection(self, vchannel: str) -> str:
        """Its name; the id in the vchannel for a collection that the catalog does not have."""
        if len(vchannel) > VCHANNEL_NAME_LENGTH_MAX:
            # Of no collection. Nobody appends to it, and a reader of it counts as all such readers.
            return ""
        now_s = get_running_loop().time()
        found = self._names.get(vchannel)
        if found is not None and now_s < found[1]:
            return found[0]
        try:
            shard = await self._schemas.shard(vchannel)
        except Refused:  # the store does not answer; the next one asks again
            return found[0] if found is not None else name_without_collection(vchannel)
        name = shard.collection if isinstance(shard, Shard) else name_without_collection(vchannel)
        self._names[vchannel] = name, now_s + NAME_S
        if len(self._names) > NAMES_MAX:
            self._names.popitem(last=False)
        return name


def _exhausted(subjects: Sequence[Subject], what: str, retry_s: float) -> Throttled:
    who = " or ".join([f"{it.scope} {it.name!r}" for it in subjects])
    retry_ms = max(1, round(retry_s * 1000))
    cause = f"{who} is over its limit of {what}; try again in {retry_ms} ms"
    return Throttled(StreamingCode.RATE_LIMIT_REJECTED, cause, retry_ms)
