"""Bugs that a storm must notice: each replaces one function, in the process that it is planted in.

The product has no switch for them. What came of each: tests/chaos/README.md.
"""

import asyncio
import itertools
import math
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from broker.client.append.outbox import PendingAppend, SequenceNumbers
from broker.client.read.batch_subscription import BatchSubscription
from broker.client.read.vchannel_progress import VChannelProgress
from broker.codec.broadcast_copies import NodeCopies
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.broadcast import plan_requests
from broker.coordinator.broadcast.broadcaster import Broadcaster
from broker.coordinator.broadcast.messages import PlanBroadcast
from broker.coordinator.records import encode_number
from broker.core.cluster.resource_locks import ResourceLocks
from broker.core.groups.group_changes import MessagesAcked
from broker.core.groups.lease_book import LeaseBook
from broker.core.groups.tick_spans import TickSpans
from broker.core.log import assembler, record_drafts
from broker.core.log.numbered_producers import GroupSequences
from broker.core.msgstream import log_windows
from broker.core.time import tso
from broker.master.table.apply_change import ChangeWriter
from broker.master.table.table_records import PARTITION_COUNT_PREFIX
from broker.model.broadcast import Broadcast
from broker.model.failure import Refused
from broker.model.ids import TimeTick
from broker.model.master.ddl import PlannedRequest
from broker.model.master.table_change import AddPartition, TableChange
from broker.model.message import MessageType
from broker.model.position import StartFrom, TimeTickGt
from broker.model.record import Record
from broker.node.groups.group_writer import GroupWriter
from broker.node.state.write_lease import WriteLease
from broker.ports.meta import MetaError
from broker.wal.segmented.claims import Claim
from broker.wal.segmented.os_files import OsFile, OsFiles
from broker.wal.segmented.writer import Writer
from schemas.generated.tidemark import v1
from tests.chaos.storm.groups.group_sabotages import two_owners_of_a_key
from tests.chaos.storm.kafka_sabotages import acks_past_a_gap, reads_behind_a_claim
from tests.chaos.storm.purging.space_sabotages import forgets_holds, purges_an_open_transaction

Patch = tuple[Any, str, Any]
"""An object, the name of what it has, and what takes its place."""

WRITEBACK_S = 0.2
EVERY = 20
"""Bugs that would show at once, when they always happened, happen so rarely."""


@dataclass(frozen=True, slots=True)
class Sabotage:
    """`harness`: it is planted in the client, which runs in the process that judges."""

    breaks: str
    patches: Callable[[], Sequence[Patch]]
    harness: bool = False


def plant(name: str) -> None:
    """For the rest of this process; "" and those of clients plant nothing."""
    if name and not SABOTAGES[name].harness:
        for owner, attribute, replacement in SABOTAGES[name].patches():
            setattr(owner, attribute, replacement)


@contextmanager
def planted_in_clients(name: str) -> Iterator[None]:
    """Until it is left; "" and those of members plant nothing."""
    patches = SABOTAGES[name].patches() if name and SABOTAGES[name].harness else ()
    before = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in patches]
    for owner, attribute, replacement in patches:
        setattr(owner, attribute, replacement)
    try:
        yield
    finally:
        for owner, attribute, original in before:
            setattr(owner, attribute, original)


# ---- what is sent again -------------------------------------------------------------------------


def _stores_repeats() -> Sequence[Patch]:
    return [(GroupSequences, "look_up", lambda *_: None)]


def _numbers_anew() -> Sequence[Patch]:
    number = SequenceNumbers.number

    def renumbered(numbers: SequenceNumbers, pending: PendingAppend[object]) -> None:
        pending.number = None
        number(numbers, pending)

    return [(SequenceNumbers, "number", renumbered)]


def _shows_repeats() -> Sequence[Patch]:
    return [(BatchSubscription, "_unseen", lambda _, batch: batch)]


def _skips_in_batches() -> Sequence[Patch]:
    request = BatchSubscription._request

    def beyond(subscription: BatchSubscription) -> v1.ReadRequest:
        asked = request(subscription)
        if asked.open is not None and asked.open.position is not None:
            asked.open.position.next_id += 1
        return asked

    return [(BatchSubscription, "_request", beyond)]


def _skips_in_messages() -> Sequence[Patch]:
    resume = VChannelProgress.resume

    def beyond(progress: VChannelProgress) -> Any:
        policy, wanted = resume(progress)
        if isinstance(policy, StartFrom) and isinstance(wanted, TimeTickGt):
            return policy, TimeTickGt(wanted.tick + 1)  # type: ignore[arg-type]
        return policy, wanted

    return [(VChannelProgress, "resume", beyond)]


# ---- the log ------------------------------------------------------------------------------------


def _checks_no_claim() -> Sequence[Patch]:
    return [(Claim, "check", lambda _: None)]


def _checks_no_lease() -> Sequence[Patch]:
    return [
        (WriteLease, "holds", lambda *_: True),
        # Else the coordinator would keep it from closing ticks beside the next owner.
        (LiveNodes, "tick_refusal", lambda *_: None),
    ]


def _syncs_later() -> Sequence[Patch]:
    """Records stay in this process for a while, as in a page cache, and die with it.

    Whoever does anything else with a file of this process finds them written.
    """
    pages: list[tuple[OsFile, int, Sequence[bytes]]] = []
    storing, lock = threading.local(), threading.RLock()
    store, write_durable = Writer._store, OsFile.write_durable

    def write_back() -> None:
        with lock:
            while pages:
                file, offset, parts = pages.pop(0)
                write_durable(file, offset, parts)

    def store_soon(*given: Any) -> Any:
        storing.now = True
        try:
            return store(*given)
        finally:
            storing.now = False

    def write_soon(file: OsFile, offset: int, parts: Sequence[bytes]) -> None:
        if not getattr(storing, "now", False):
            write_back()
            write_durable(file, offset, parts)
            return
        with lock:
            if not pages:
                timer = threading.Timer(WRITEBACK_S, write_back)
                timer.daemon = True
                timer.start()
            pages.append((file, offset, [bytes(part) for part in parts]))

    def after_writing(work: Any) -> Any:
        def done(*given: Any, **more: Any) -> Any:
            write_back()
            return work(*given, **more)

        return done

    others = [(OsFile, it) for it in ("read", "size", "truncate", "close", "sync")]
    return [
        (Writer, "_store", store_soon),
        (OsFile, "write_durable", write_soon),
        *[(owner, name, after_writing(getattr(owner, name))) for owner, name in others],
        (OsFiles, "open", after_writing(OsFiles.open)),
    ]


# ---- transactions -------------------------------------------------------------------------------


def _commits_what_is_rolled_back() -> Sequence[Patch]:
    record = record_drafts._record

    def committed(*given: Any) -> Any:
        made = record(*given)
        ends = made.kind == MessageType.ROLLBACK_TXN
        return replace(made, kind=MessageType.COMMIT_TXN) if ends else made

    return [(record_drafts, "_record", committed)]


def _leaves_a_body_out() -> Sequence[Patch]:
    members_of, calls = assembler.members_of, itertools.count(1)  # type: ignore[attr-defined]

    def fewer(begin: Record, bodies: Sequence[Record], *given: Any) -> Any:
        kept = bodies[1:] if len(bodies) > 1 and not next(calls) % EVERY else bodies
        return members_of(begin, kept, *given)

    return [(assembler, "members_of", fewer)]


def _leaves_out_the_end() -> Sequence[Patch]:
    return [(log_windows, "bisect_right", bisect_left)]


# ---- ticks --------------------------------------------------------------------------------------


def _reserves_twice() -> Sequence[Patch]:
    reserve, calls, given = tso.reserve, itertools.count(1), list[TimeTick]()

    def again(
        hybrid: tso.HybridClock, count: int, now_ms: int
    ) -> tso.ReservedTicks | tso.SaveFirst:
        made = reserve(hybrid, count, now_ms)
        if not isinstance(made, tso.ReservedTicks):
            return made
        given.append(made.first)
        return made if next(calls) % EVERY else replace(made, first=given[-2])

    return [(tso, "reserve", again)]


def _goes_back() -> Sequence[Patch]:
    started = tso.started

    def earlier(saved_ms: int, bound_ms: int) -> tso.HybridClock:
        made = started(saved_ms, bound_ms)
        return replace(made, physical_ms=max(1, made.physical_ms - 2 * tso.WINDOW_MS))

    return [(tso, "started", earlier)]


# ---- broadcasts ---------------------------------------------------------------------------------


def _leaves_a_copy_out() -> Sequence[Patch]:
    append, calls = NodeCopies.append, itertools.count(1)

    async def fewer(ours: NodeCopies, copies: Sequence[Any]) -> Sequence[Any]:
        if len(copies) < 2 or next(calls) % 5:
            return await append(ours, copies)
        outcomes = list(await append(ours, copies[1:]))
        return [outcomes[0], *outcomes]

    return [(NodeCopies, "append", fewer)]


def _locks_nothing() -> Sequence[Patch]:
    request = ResourceLocks.request
    return [(ResourceLocks, "request", lambda locks, _keys: request(locks, ()))]


# ---- groups -------------------------------------------------------------------------------------


def _answers_acks_before_they_are_stored() -> Sequence[Patch]:
    """They are applied and answered at once; a process that dies soon takes them along."""
    write_then = GroupWriter.write_then

    def answered_first(writer: GroupWriter, vchannel: str, change: Any, answered: Any) -> None:
        if not isinstance(change, MessagesAcked):
            write_then(writer, vchannel, change, answered)
            return
        opened = writer._opened
        opened.groups.table.apply(vchannel, change, opened.tail.closed.tick)
        loop = asyncio.get_running_loop()
        loop.call_soon(answered, None)
        loop.call_later(WRITEBACK_S, write_then, writer, vchannel, change, lambda _: None)

    return [(GroupWriter, "write_then", answered_first)]


def _keeps_leases_that_are_over() -> Sequence[Patch]:
    """Another member gets the messages, and this one may acknowledge them, too."""

    def expire(book: LeaseBook, now_s: float) -> int:
        over = [it for it in book._leases.values() if it.until_s <= now_s]
        for lease in over:
            lease.until_s = math.inf
            book._return(TickSpans(lease.left), now_s, lease.times)
        return len(over)

    return [(LeaseBook, "expire", expire)]


# ---- definitions --------------------------------------------------------------------------------


def _validates_unlocked() -> Sequence[Patch]:
    """What a change is checked against may have changed when it holds its names."""
    receive, plan = Broadcaster.receive, plan_requests._plan
    early: dict[str, Broadcast | Exception] = {}

    async def checked_first(ours: Broadcaster, batch: Sequence[Any]) -> None:
        for envelope in batch:
            message = envelope.message
            if isinstance(message, PlanBroadcast) and message.request.request_key not in early:
                try:
                    made: Broadcast | Exception = await ours._planner.plan(message.request)
                except (Refused, MetaError) as error:
                    made = error
                early[message.request.request_key] = made
        await receive(ours, batch)

    async def as_checked(request: PlannedRequest, *given: Any) -> Broadcast:
        made = early.pop(request.request_key, None)
        if isinstance(made, Exception):
            raise made
        return made or await plan(request, *given)

    return [(Broadcaster, "receive", checked_first), (plan_requests, "_plan", as_checked)]


def _calls_back_twice() -> Sequence[Patch]:
    """And the second time counts again what the first has counted."""
    apply = ChangeWriter.apply

    async def twice(writer: ChangeWriter, change: TableChange, tick: TimeTick) -> None:
        await apply(writer, change, tick)
        await apply(writer, change, tick)
        if isinstance(change, AddPartition):
            key = f"{PARTITION_COUNT_PREFIX}{change.collection}"
            count = await writer._records.partition_count(change.collection)
            await writer._store.write({key: encode_number(count + 1)})

    return [(ChangeWriter, "apply", twice)]


SABOTAGES: Mapping[str, Sabotage] = {
    "stores-repeats": Sabotage("the log knows no numbers of producers", _stores_repeats),
    "numbers-anew": Sabotage("a batch gets a new number each time", _numbers_anew, harness=True),
    "shows-repeats": Sabotage(
        "a reader of batches shows what comes twice", _shows_repeats, harness=True
    ),
    "skips-in-batches": Sabotage(
        "a resumed reader of batches begins one id late", _skips_in_batches, harness=True
    ),
    "skips-in-messages": Sabotage(
        "a resumed consumer begins one tick late", _skips_in_messages, harness=True
    ),
    "checks-no-claim": Sabotage("a writer never asks who owns the log", _checks_no_claim),
    "checks-no-lease": Sabotage("a node writes without a lease", _checks_no_lease),
    "syncs-later": Sabotage("an append is acknowledged before it is synced", _syncs_later),
    "commits-rollbacks": Sabotage("a rollback is stored as a commit", _commits_what_is_rolled_back),
    "half-transactions": Sabotage("a reader misses a body, sometimes", _leaves_a_body_out),
    "ticks-twice": Sabotage("the oracle gives ticks twice, sometimes", _reserves_twice),
    "ticks-go-back": Sabotage("a new oracle begins before the old one ended", _goes_back),
    "copy-left-out": Sabotage("a copy is recorded and not appended, sometimes", _leaves_a_copy_out),
    "locks-nothing": Sabotage("broadcasts wait for nobody", _locks_nothing),
    "validates-unlocked": Sabotage(
        "a definition is checked before its names are held", _validates_unlocked
    ),
    "acks-before-sync": Sabotage(
        "an acknowledgement is answered before it is synced", _answers_acks_before_they_are_stored
    ),
    "late-acks": Sabotage(
        "a member may acknowledge when its lease is over", _keeps_leases_that_are_over
    ),
    "two-owners-of-a-key": Sabotage(
        "a slot of keys moves while its owner has messages", two_owners_of_a_key
    ),
    "window-off-by-one": Sabotage(
        "a window leaves out the message at its end", _leaves_out_the_end, harness=True
    ),
    "forgets-holds": Sabotage("a purge asks nobody who needs it", forgets_holds),
    "purges-an-open-transaction": Sabotage(
        "a purge takes what an open transaction has", purges_an_open_transaction
    ),
    "acks-past-a-gap": Sabotage("Kafka: no look at what others wrote between", acks_past_a_gap),
    "reads-behind-a-claim": Sabotage("Kafka: old terms count for ever", reads_behind_a_claim),
    "callback-twice": Sabotage("a callback counts twice", _calls_back_twice),
}
KAFKA_BUGS = ("acks-past-a-gap", "reads-behind-a-claim")
"""Without a log in Kafka they change nothing."""
