"""Several messages at once: whole on each vchannel, against a real broker in the same process."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from broker.client import (
    Appended,
    AppendsFailed,
    Client,
    DeadlineExceeded,
    InvalidArgument,
    Message,
    OutcomeUnknown,
    Received,
    TidemarkError,
    TransactionExpired,
    Unrecoverable,
    connect,
)
from broker.client.append.appends import Appends
from broker.client.append.txn_appends import TxnAppends
from broker.client.cluster.targets import NewVChannel
from broker.client.txn.atomic import append_whole
from broker.model.ids import MessageId, TimeTick, VChannelName
from broker.model.message import SYSTEM_TYPES, MessageType
from schemas.properties.txn_context import TxnContext
from tests.local_broker import local_broker

PCHANNEL = "by-dev-rootcoord-dml_1"
VCHANNEL = NewVChannel(f"{PCHANNEL}_7v0")
LONG_S = 60.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """The address of one that runs in a thread and a loop of its own."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(
            local_broker(tmp_path, pchannels=2, message_bytes_max=100_000)
        ) as started,
    ):
        yield started.address


async def everything(log: Client, target: str = VCHANNEL) -> list[Received]:
    return [each async for each in log.read(target, until="now").messages()]


async def test_atomic_messages_are_whole_on_each_vchannel_and_answered_in_order(
    broker: str,
) -> None:
    async with connect(broker) as log:
        await log.collections.create("rows", shards=2)
        messages = [Message(b"%d" % number, key=number) for number in range(20)]
        landed = await log.append_messages("rows", messages)
        found = [each async for each in log.read("rows", until="now").messages()]
        assert {each.id: each.payload for each in found if each.vchannel == landed[0].vchannel}[
            landed[0].id
        ] == b"0"
        for vchannel in {it.vchannel for it in landed}:
            mine = [each for each in found if each.vchannel == vchannel]
            assert {each.tick for each in mine} == {
                it.tick for it in landed if it.vchannel == vchannel
            }
            assert len({each.tick for each in mine}) == 1


async def test_a_single_message_of_a_vchannel_needs_no_transaction(broker: str) -> None:
    async with connect(broker) as log:
        await log.append_messages(VCHANNEL, [Message(b"a")])
        await log.append_messages(VCHANNEL, [Message(b"b")] * 2)
        found = [(it.payload, "_tx" in it.tags) for it in await everything(log)]
        assert found == [(b"a", False), (b"b", True), (b"b", True)]


async def test_one_message_that_is_refused_keeps_all_of_its_vchannel_out(broker: str) -> None:
    async with connect(broker) as log:
        await log.collections.create("rows", shards=2)
        messages = [Message(b"x" * (200_000 if it == 3 else 10), key=it) for it in range(12)]
        with pytest.raises(AppendsFailed) as raised:
            await log.append_messages("rows", messages, deadline_s=LONG_S)
        found = {(it.vchannel, it.id) for it in await everything(log, "rows")}
        landed = [it for it in raised.value.results if isinstance(it, Appended)]
        assert {(it.vchannel, it.id) for it in landed} == found
        refused = {it for it in raised.value.results if not isinstance(it, Appended)}
        assert len(refused) == 1
        assert 0 < len(landed) < len(messages)
        assert not raised.value.retriable


async def test_what_cannot_share_a_transaction_is_refused_and_nothing_is_read(broker: str) -> None:
    async with connect(broker) as log:
        some = [Message(b"a"), Message(b"", type=MessageType.MANUAL_FLUSH, version=2)]
        with pytest.raises(AppendsFailed) as raised:
            await log.append_messages(VCHANNEL, some, deadline_s=LONG_S)
        assert all(isinstance(it, InvalidArgument) for it in raised.value.results)
        assert await everything(log) == []


async def test_every_tick_is_above_the_barrier_alone_and_in_a_transaction(broker: str) -> None:
    async with connect(broker) as log:
        other = await log.append(NewVChannel("by-dev-rootcoord-dml_0_7v0"), b"elsewhere")
        for count in (1, 3):
            landed = await log.append_messages(
                VCHANNEL, [Message(b"a")] * count, barrier_time_tick=other.tick
            )
            assert all(it.tick > other.tick for it in landed)
        alone = await log.append(VCHANNEL, b"b", barrier_time_tick=landed[0].tick)
        assert alone.tick > landed[0].tick


async def test_a_tick_of_a_clock_that_is_ahead_is_waited_for(broker: str) -> None:
    async with connect(broker) as log:
        newest = await log.append(VCHANNEL, b"a")
        soon = newest.tick + (800 << 18)
        landed = await log.append_messages(
            VCHANNEL, [Message(b"b")] * 2, barrier_time_tick=soon, atomic=False
        )
        assert all(it.tick > soon for it in landed)
        late = landed[0].tick + (5_000 << 18)
        with pytest.raises(Unrecoverable, match=r"waits at most 0\.9 s"):
            await log.append(VCHANNEL, b"c", barrier_time_tick=late, deadline_s=1.0)
        assert [it.payload for it in await everything(log)] == [b"a", b"b", b"b"]


async def test_a_barrier_far_in_the_future_is_refused_and_nothing_is_appended(broker: str) -> None:
    async with connect(broker) as log:
        newest = await log.append(VCHANNEL, b"a")
        future = newest.tick + (3_600_000 << 18)
        with pytest.raises(Unrecoverable, match="barrier"):
            await log.append(VCHANNEL, b"b", barrier_time_tick=future)
        for count in (1, 2):
            with pytest.raises(AppendsFailed) as raised:
                await log.append_messages(
                    VCHANNEL, [Message(b"b")] * count, barrier_time_tick=future
                )
            assert all(isinstance(it, Unrecoverable) for it in raised.value.results)
        assert [it.payload for it in await everything(log)] == [b"a"]
        for wrong in (-1, 1 << 64):
            with pytest.raises(ValueError, match="not a time tick"):
                await log.append(VCHANNEL, b"b", barrier_time_tick=wrong)


async def test_a_raw_append_goes_to_its_vchannel_and_takes_no_message_of_the_log_itself(
    broker: str,
) -> None:
    async with connect(broker) as log:
        landed = await log.raw_append(VCHANNEL, Message(b"a", key=b"k", properties={"p": "q"}))
        (found,) = await everything(log)
        assert (found.id, found.tick, found.vchannel) == (landed.id, landed.tick, VCHANNEL)
        assert (found.key, found.properties) == (b"k", {"p": "q"})
        for kind in SYSTEM_TYPES:
            with pytest.raises(InvalidArgument, match=MessageType(kind).name):
                await log.raw_append(VCHANNEL, Message(b"", type=kind))
            async with log.txn(VCHANNEL) as txn:
                with pytest.raises(InvalidArgument):
                    await txn.append(b"", type=kind)
        assert [it.payload for it in await everything(log)] == [b"a"]
        assert await log.admin.wal_name() == "rocksmq"


# ---- the trying again, against appends that answer as they are told ------------------------------


class ScriptedAppends(Appends):
    """Appends nothing but transactions, by script."""

    def __init__(self, *, bodies: list[Exception], commits: list[Exception]) -> None:
        self.of_txns = self.script = ScriptedTxnAppends(bodies, commits)

    @property
    def sent(self) -> list[int]:
        return self.script.sent


class ScriptedTxnAppends(TxnAppends):
    """Answers begins, bodies and commits from three lists of errors; without one it lands."""

    def __init__(self, bodies: list[Exception], commits: list[Exception]) -> None:
        self.errors = {MessageType.INSERT: bodies, MessageType.COMMIT_TXN: commits}
        self.sent: list[int] = []

    async def step(
        self,
        vchannel: VChannelName,
        message: Message,
        txn: str,
        deadline_s: float,
        *,
        commits: bool = False,
    ) -> tuple[Appended, bytes]:
        self.sent.append(message.type)
        errors = self.errors.get(MessageType(message.type), [])
        if errors:
            raise errors.pop(0)
        number = len(self.sent)
        landed = Appended(vchannel, MessageId(number), TimeTick(number), MessageId(number))
        return landed, TxnContext(7, 10_000).encode()

    async def whole(self, *_: object) -> None:
        """As with a server of an earlier release."""

    async def bodies(
        self,
        vchannel: VChannelName,
        messages: Iterable[Message],
        txn: str,
        deadline_s: float,
        named: bytes = b"",
    ) -> list[Appended | TidemarkError]:
        results: list[Appended | TidemarkError] = []
        for message in messages:
            try:
                results.append((await self.step(vchannel, message, txn, deadline_s))[0])
            except TidemarkError as error:
                results.append(error)
        return results


async def whole(appends: Appends, deadline_s: float = LONG_S) -> list[Appended]:
    return await append_whole(appends, VChannelName(VCHANNEL), [Message(b"a")] * 2, deadline_s)


async def test_an_expired_transaction_is_retried_from_its_begin() -> None:
    expired = TransactionExpired("gone")
    appends = ScriptedAppends(bodies=[expired], commits=[expired])
    first, second = await whole(appends)
    assert first.tick == second.tick == len(appends.sent)
    assert appends.sent.count(MessageType.BEGIN_TXN) == 3
    assert appends.sent[-4:] == [MessageType.BEGIN_TXN, 2, 2, MessageType.COMMIT_TXN]


async def test_a_body_of_unknown_outcome_rolls_back_and_the_whole_is_retried() -> None:
    appends = ScriptedAppends(bodies=[OutcomeUnknown("?")], commits=[])
    await whole(appends)
    assert appends.sent.count(MessageType.ROLLBACK_TXN) == 1
    assert appends.sent.count(MessageType.COMMIT_TXN) == 1


async def test_a_commit_of_unknown_outcome_is_raised_and_not_retried() -> None:
    appends = ScriptedAppends(bodies=[], commits=[OutcomeUnknown("?")])
    with pytest.raises(OutcomeUnknown):
        await whole(appends)
    assert appends.sent.count(MessageType.BEGIN_TXN) == 1


async def test_one_that_expires_until_the_deadline_was_certainly_not_written() -> None:
    appends = ScriptedAppends(bodies=[], commits=[TransactionExpired("gone")] * 1000)
    with pytest.raises(DeadlineExceeded, match="nothing of it will be read"):
        await whole(appends, deadline_s=0.2)
