"""The promises of a log to writers and readers, over random lives of a whole node.

Appends, transactions and exclusive messages, while actors are killed, writes fail and the channel
moves; then the stored records, the answers and the readers are held against naive walks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from actors import ActorError
from actors.testing import run_seeded
from broker.core.log.delivery import selection_of
from broker.core.txn.txn_limits import TxnLimits
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import TxnId
from broker.model.message import (
    Appended,
    AppendedInTxn,
    ClosedTick,
    Delivered,
    DeliveredInTxn,
    MessageType,
    NewMessage,
)
from broker.model.position import MessageTypes
from broker.model.record import Record
from broker.model.txn import TxnContext
from broker.node.append.intake import append
from broker.node.appender_messages import AppendOutcome
from broker.node.directory_messages import Located
from broker.node.state.node_limits import NodeLimits
from broker.wal.memory_wal import Fault, MemoryWal
from tests.broker.core.log.test_assembler import naive
from tests.broker.core.txn.test_transactions import check_log
from tests.broker.node.world import PCHANNEL, Reader, World, message, running_node

LIMITS = NodeLimits(
    tail_bytes_max=2_000,
    tail_age_s=0.4,
    txns=TxnLimits(keepalive_default_ms=400),
    txn_finish_s=0.5,
)
NEVER_STORED = {
    StreamingCode.INVALID_ARGUMENT,
    StreamingCode.TRANSACTION_EXPIRED,
    StreamingCode.INVALID_TRANSACTION_STATE,
    StreamingCode.UNRECOVERABLE,
}
SAYS = ("begin", "body", "body", "body", "commit", "commit", "rollback", "plain", "plain", "drop")
DOES = ("all", "wait", "kill", "fault", "move", "stale", "pull", "pull")
KINDS = {"body": 2, "commit": 901, "rollback": 902, "plain": 3, "drop": 6, "all": 37}
VICTIMS = ("appender", "appender", "time_tick", "scanners/scanner-1", "txn_monitor", "transactions")
DELETES = (MessageTypes(frozenset({3})),)

LIVES = st.lists(
    st.tuples(st.sampled_from(SAYS * 2 + DOES), st.integers(0, 5)), min_size=1, max_size=40
)


@dataclass
class Known:
    """What the clients of one life were told."""

    txns: list[tuple[TxnContext, str]] = field(default_factory=list)
    stored: dict[bytes, Appended] = field(default_factory=dict)
    never: set[bytes] = field(default_factory=set)
    bodies: dict[TxnId, list[bytes]] = field(default_factory=dict)
    """Acknowledged ones."""
    ends: dict[TxnId, set[int]] = field(default_factory=dict)
    """Kinds of the ends that were acknowledged; 0 for a refusal of a commit."""

    def learn(self, new: NewMessage, outcome: AppendOutcome) -> None:
        if isinstance(outcome, Refusal):
            if outcome.code in NEVER_STORED:
                self.never.add(new.body)
                if new.type == MessageType.COMMIT_TXN and new.txn is not None:
                    self.ends.setdefault(new.txn.id, set()).add(0)
            return
        if isinstance(outcome, AppendedInTxn) and new.type == MessageType.BEGIN_TXN:
            self.txns.append((outcome.txn, new.vchannel))
        elif isinstance(outcome, AppendedInTxn) and new.type in (901, 902):
            self.ends.setdefault(outcome.txn.id, set()).add(new.type)
            return  # one that is repeated has the answer of the first
        elif isinstance(outcome, AppendedInTxn):
            self.bodies.setdefault(outcome.txn.id, []).append(new.body)
        self.stored[new.body] = outcome


class Life:
    """One node from its first assignment on."""

    def __init__(self, world: World, faults: list[Fault]) -> None:
        self.world, self.faults, self.known = world, faults, Known()
        self.early, self.stale = Reader(world), list[Located]()
        self.number = 0

    async def step(self, what: str, which: int) -> None:
        world = self.world
        match what:
            case "wait":
                await world.clock.sleep((0.01, 0.1, 0.3, 0.5, 0.7, 1.0)[which])
            case "kill":
                self.kill(VICTIMS[which])
            case "fault":
                self.faults.append((Fault.LOST, Fault.KEPT)[which % 2])
            case "move":
                term = world.terms.newest[PCHANNEL]
                self.stale.append(await world.locate())
                await world.remove(term=term)
                await world.assign(term=max(term, world.terms.newest[PCHANNEL]) + 1 + which)
            case "stale" if self.stale:
                late = message("stale")
                (outcome,) = await append(self.stale[-1], (late,), deadline_s=30.0)
                assert isinstance(outcome, Refusal)
                self.known.never.add(late.body)
            case "pull" | "stale":
                await self.early.pull((1, 50, 200, 1000, 1 << 20, 1)[which])
            case _:
                await self.say(what, which)

    def kill(self, victim: str) -> None:
        try:
            self.world.system.kill(self.world.path(victim))
        except ActorError:  # it is down already
            return

    async def say(self, what: str, which: int) -> None:
        self.number += 1
        text = f"{what}/{self.number}"
        if what == "begin":
            new = message(text, which % 2, 900, txn=TxnContext(TxnId(0), 0))
        elif what in ("body", "commit", "rollback"):
            if not self.known.txns:
                return
            txn, vchannel = self.known.txns[-1 - which % len(self.known.txns)]
            new = message(text, int(vchannel[-1]), KINDS[what], txn=txn)
        else:
            new = message(text, which % 2, KINDS[what])
        (outcome,) = await self.world.append(new)
        self.known.learn(new, outcome)


@settings(max_examples=max(60, settings.default.max_examples // 2), deadline=None)  # type: ignore[union-attr]
@given(LIVES, st.integers(0, 1000))
def test_whatever_happens_the_log_keeps_its_promises(
    life: list[tuple[str, int]], seed: int
) -> None:
    async def scenario() -> None:
        faults: list[Fault] = []

        def fault(_channel: object, _records: object) -> Fault | None:
            return faults.pop() if faults else None

        async with running_node(MemoryWal(segment_bytes=3_000, fault_of=fault), LIMITS) as world:
            await world.assign()
            lived = Life(world, faults)
            for what, which in life:
                await lived.step(what, which)
            faults.clear()
            await until_stored(world)
            fresh, deletes = Reader(world), Reader(world, f"{PCHANNEL}_7v0", DELETES)
            newest = (await world.offsets()).next_id - 1
            for reader in (lived.early, fresh, deletes):
                await reader.read_until(newest)
            records = await stored(world, newest)
            check_records(records, lived.known)
            check_transactions(fresh.messages, lived.known)
            for reader in (lived.early, fresh, deletes):
                check_events(reader.events)
            assert lived.early.messages == fresh.messages
            assert seen(fresh) == [it for it in naive(records, selection_of("", ())) if it[3]]
            narrow = naive(records, selection_of(f"{PCHANNEL}_7v0", DELETES))
            assert seen(deletes) == [it for it in narrow if it[3]]
            assert deletes.ticks
            assert deletes.ticks[-1].tick >= records[-1].last_tick

    run_seeded(seed, scenario)


async def until_stored(world: World) -> None:
    """A last message goes in, whatever state the channel is in."""
    while isinstance((await world.append(message("last")))[0], Refusal):
        await world.clock.sleep(0.1)


async def stored(world: World, newest: int) -> list[Record]:
    opened = world.node.open_channels.find(PCHANNEL)
    assert opened is not None
    records: list[Record] = []
    at = opened.log.bounds().first_id
    while at <= newest:
        records += await opened.log.read(at, 1 << 20)
        at = records[-1].next_id
    return [it for it in records if it.base_id <= newest]


def seen(reader: Reader) -> list[tuple[int, int, int, bytes]]:
    return [(it.id, it.tick, it.last_confirmed_id, it.body) for it in reader.messages]


def check_records(records: Sequence[Record], known: Known) -> None:
    """P1, P4, P6, P7, P8, P18: what is stored, and where."""
    check_log(list(records))
    for one, after in pairwise(records):
        assert after.term >= one.term
    found = {it.body: it for record in records for it in record.messages()}
    for body, outcome in known.stored.items():
        assert (found[body].id, found[body].tick) == (outcome.id, outcome.tick)
    assert not found.keys() & known.never


def check_events(events: Sequence[Delivered | ClosedTick]) -> None:
    """P2, P3, P9: ticks grow, and nothing comes at or below one that was closed.

    A tick may be told once more, where a storage that writes no more has no newer one.
    """
    last, whole = 0, True
    for event in events:
        again = isinstance(event, ClosedTick) or not whole
        assert event.tick > last or (event.tick == last and again)
        last = event.tick
        whole = not isinstance(event, DeliveredInTxn)


def check_transactions(messages: Sequence[Delivered], known: Known) -> None:
    """P13, P14, P16, P17: all of it or nothing, and what was acknowledged."""
    bodies = {it.body for it in messages}
    for txn, _ in known.txns:
        mine, ends = known.bodies.get(txn.id, []), known.ends.get(txn.id, set())
        assert ends <= {901} or 901 not in ends or ends <= {901, 0}
        if 901 in ends:
            assert [it.body for it in messages if it.body in mine] == mine
            assert len({it.tick for it in messages if it.body in mine}) <= 1
        elif ends & {0, 902}:
            assert not bodies & {*mine}
        else:
            assert len(bodies & {*mine}) in (0, len(mine))
