"""Messages with properties of their own against a whole broker, beside a list of what was sent."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.client import Client, Gathering, Message, Received, connect
from broker.client.cluster.targets import NewVChannel
from tests.local_broker import local_broker

P = "by-dev-rootcoord-dml_0"
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="_"), max_size=4)
MESSAGES = st.lists(
    st.builds(
        Message,
        st.binary(max_size=200),
        st.one_of(st.none(), st.binary(max_size=3)),
        st.dictionaries(TEXT, TEXT, max_size=3),
    ),
    min_size=1,
    max_size=30,
)
Seen = tuple[bytes, bytes | None, tuple[tuple[str, str], ...]]
_names = iter(range(1, 1 << 30))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a broker that runs in a thread and a loop of its own."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(
            local_broker(tmp_path_factory.mktemp("own"), pchannels=1)
        ) as broker,
    ):
        yield broker.address


def shown(payload: bytes, key: object, properties: Mapping[str, str]) -> Seen:
    assert key is None or isinstance(key, bytes)
    return payload, key, tuple(sorted(properties.items()))


def of(messages: Sequence[Received]) -> list[Seen]:
    return [shown(it.payload, it.key, it.properties) for it in messages]


async def read_by_all(log: Client, name: str) -> list[list[Received]]:
    """What Milvus's Consume delivers, and what `read_batches` does."""
    single = [it async for it in log.read(name, until="now").messages()]
    batched = [it async for each in log.read_batches(name, until="now") for it in each.messages]
    return [single, batched]


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(MESSAGES, st.booleans(), st.sampled_from([None, "lz4", "zstd"]))
def test_each_message_is_read_with_what_it_was_sent_with(
    address: str, messages: list[Message], in_txn: bool, compression: str | None
) -> None:
    async def run() -> None:
        vchannel = NewVChannel(f"{P}_7v{next(_names)}")
        gathering = Gathering(compression=compression, pack_bytes_min=1)
        async with connect(address, gathering=gathering) as log:
            await log.append(vchannel, b"", properties={"first": ""})  # the server is known now
            if in_txn:
                async with log.txn(vchannel) as txn:
                    await asyncio.gather(*[_append(txn.append, it) for it in messages])
            else:
                tickets = [await log.append_soon(vchannel, it) for it in messages]
                await asyncio.gather(*tickets)
            sent = [shown(it.payload, it.key, it.properties) for it in messages]
            for found in await read_by_all(log, vchannel):
                seen = of(found)
                assert seen[0] == (b"", None, (("first", ""),))
                assert Counter(seen[1:]) == Counter(sent)
                assert [it.id for it in found] == sorted({it.id for it in found})

    asyncio.run(run())


async def _append(append: object, message: Message) -> None:
    await append(message.payload, key=message.key, properties=message.properties)  # type: ignore[operator]


async def test_messages_with_other_properties_are_stored_in_few_batches(address: str) -> None:
    vchannel = NewVChannel(f"{P}_8v1")
    async with connect(address) as log:
        await log.append(vchannel, b"first")
        tickets = [
            await log.append_soon(vchannel, Message(b"x", properties={"n": str(at)}))
            for at in range(1000)
        ]
        landed = await asyncio.gather(*tickets)
        batches = [it async for it in log.read_batches(vchannel, until="now") if len(it)]
        assert len(batches) < 20
        found = {it.id: it.properties for each in batches for it in each.messages}
        assert [found[it.id] for it in landed] == [{"n": str(at)} for at in range(1000)]


async def test_a_reader_that_begins_and_ends_within_a_batch_gets_the_right_properties(
    address: str,
) -> None:
    vchannel = NewVChannel(f"{P}_8v2")
    async with connect(address) as log:
        await log.append(vchannel, b"first")
        tickets = [
            await log.append_soon(vchannel, Message(b"%d" % at, properties={"n": str(at)}))
            for at in range(100)
        ]
        landed = await asyncio.gather(*tickets)
        expected = [(b"%d" % at, {"n": str(at)}) for at in range(40, 60)]
        reader = log.read_batches(vchannel, start=landed[40].id, until=landed[59].tick)
        found = [it async for each in reader for it in each.messages]
        assert [(it.payload, it.properties) for it in found] == expected
        between = log.read_range(vchannel, landed[40].id, landed[60].id)
        single = [it async for it in between.messages()]
        assert [(it.payload, it.properties) for it in single] == expected


async def test_the_properties_outlive_a_restart(tmp_path: Path) -> None:
    vchannel = NewVChannel(f"{P}_8v3")
    for again in (False, True):
        async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
            if not again:
                await log.append(vchannel, b"first")
                messages = [Message(b"x", properties={"n": str(at)}) for at in range(50)]
                await asyncio.gather(*[await log.append_soon(vchannel, it) for it in messages])
            for found in await read_by_all(log, vchannel):
                numbers = [it.properties["n"] for it in found[1:]]
                assert sorted(numbers, key=int) == [str(at) for at in range(50)]
