"""Ordered groups together with transactions, poison, delays, seeks, old servers and bad input."""

from pathlib import Path

import anyio
import pytest

from broker.client import Message
from broker.client.errors import InvalidArgument, NotOffered
from broker.client.groups.group_calls import GroupCalls, NewGroup
from broker.client.groups.member import GroupMember
from broker.client.groups.modes import OrderedBy
from broker.model.groups.group_mode import GroupMode
from tests.broker.client.groups.test_groups import running, take

SOON_S = 0.3


async def nothing(member: GroupMember) -> bool:
    with anyio.move_on_after(SOON_S):
        await take(member)
        return False
    return True


async def test_a_transaction_is_one_step_of_all_its_keys(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        (view,) = await log.group("g", mode="ordered", by="key").create("trains")
        vchannel = view.group.key.vchannel
        async with log.group("g").join("trains") as ann:
            await log.append("trains", b"a 0", key=b"a")
            first = await take(ann)
            async with log.txn(vchannel) as txn:
                await txn.append(b"a 1", key=b"a")
                await txn.append(b"b 0", key=b"b")
            await log.append("trains", b"b 1", key=b"b")
            await log.append("trains", b"c 0", key=b"c")
            other = await take(ann)
            assert other.payloads == [b"c 0"], "b waits for the transaction, and that for a"
            await first.ack()
            both = await take(ann)
            assert both.payloads[:2] == [b"a 1", b"b 0"]
            if len(both) == 2:
                await both.ack()
                assert (await take(ann)).payloads == [b"b 1"]


async def test_what_a_transaction_acknowledges_holds_its_key_until_it_ends(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        group = log.group("g", mode="ordered", by="key")
        async with group.join("trains") as ann:
            for number in range(2):
                await log.append("trains", b"a %d" % number, key=b"a")
                if not number:
                    first = await take(ann)
            txn = log.txn(first.vchannel)
            await txn.begin()
            await txn.ack(first)
            assert await nothing(ann)
            await txn.rollback()
            again = await take(ann)
            assert again.payloads == [b"a 0"]
            async with log.txn(first.vchannel) as txn:
                await txn.ack(again)
            assert (await take(ann)).payloads == [b"a 1"]


@pytest.mark.parametrize("by", ["key", "vchannel"])
async def test_followers_of_poison_wait_until_it_is_given_up(tmp_path: Path, by: OrderedBy) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        sent = [Message(b"%s %d" % (key, at), key=key) for at in range(3) for key in (b"a", b"b")]
        await log.append_messages("trains", sent, atomic=False)
        group = log.group("g", mode="ordered", by=by)
        done: list[bytes] = []
        # Longer than the test may last: the last delivery waits for no lease.
        async with group.join("trains", deliveries_max=2, lease_s=600) as member:
            while len(done) < 5:
                batch = await take(member)
                poison = [it for it in batch.messages if it.payload == b"a 1"]
                if poison:
                    assert b"a 0" in done or b"a 0" in batch.payloads
                    later = [it for it in batch.messages if it.id > poison[0].id]
                    behind = [it for it in later if by == "vchannel" or it.key == b"a"]
                    good = [it for it in batch.messages if it not in (*poison, *behind)]
                    if good:
                        await batch.ack(good)
                    await batch.nack(poison)
                    done += [it.payload for it in good]
                else:
                    done += batch.payloads
                    await batch.ack()
        assert [it for it in done if it.startswith(b"a")] == [b"a 0", b"a 2"]
        assert [it for it in done if it.startswith(b"b")] == [b"b 0", b"b 1", b"b 2"]
        letters = await group.dead()
        while not letters:
            letters = await group.dead()
        assert [it.message.payload for it in letters] == [b"a 1"]


async def test_a_delayed_message_comes_in_the_order_of_its_release(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        group = log.group("g", mode="ordered", by="key")
        async with group.join("trains") as ann:
            for delay_ms in (1000, 4000, 20_000):
                placed = await log.append("trains", b"a 0", key=b"a")
                due_ms = (placed.tick >> 18) + delay_ms
                await log.append("trains", b"a late", key=b"a", deliver_at=due_ms)
                last = await log.append("trains", b"a 1", key=b"a")
                found: list[bytes] = []
                while len(found) < 3:
                    batch = await take(ann)
                    found += batch.payloads
                    await batch.ack()
                # Else a slow machine has released it before the last append.
                if last.tick >> 18 < due_ms:
                    break
            else:
                pytest.fail("the machine needs more than 20 s for two appends")
            assert found == [b"a 0", b"a 1", b"a late"]


async def test_one_key_of_packed_batches_comes_without_the_others(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        (view,) = await log.group("g", mode="ordered", by="key").create("trains")
        vchannel = view.group.key.vchannel
        payloads = [b"%d " % at + 100 * b"x" for at in range(200)]
        keys = [b"k%d" % (at % 10) for at in range(200)]
        group = log.group("g")
        async with group.join("trains", member="ann") as ann, group.join("trains") as bob:
            await log.append_batch(vchannel, payloads, keys=keys, properties={"line": "IC"})
            found: dict[bytes | None, list[bytes]] = {}
            for member in (ann, bob):
                batch = await take(member)
                sizes = [len(it) for it in batch.batches]
                assert len(batch) == sum(sizes) < 200
                for message in batch.messages:
                    assert message.properties == {"line": "IC"}
                    found.setdefault(message.key, []).append(message.payload)
                await batch.ack()
            assert sum(map(len, found.values())) == 200
            for number in range(10):
                assert found[b"k%d" % number] == payloads[number::10]


async def test_a_sought_group_begins_again_in_order(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        for number in range(3):
            await log.append("trains", b"%d" % number)
        group = log.group("g", mode="ordered")
        for _ in range(2):
            async with group.join("trains") as ann:
                batch = await take(ann)
                assert batch.payloads == [b"0", b"1", b"2"]
                with pytest.raises(InvalidArgument, match="comes behind"):
                    await batch.ack(batch.messages[1:2])
                await batch.ack()
            await group.seek("trains", "all")


async def test_a_server_that_knows_no_modes_is_found_out(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains")
        calls = log.groups._parts.calls
        (view,) = await log.group("g").create("trains")
        wanted = NewGroup("g", 1000, "all", {}, None)
        assert await calls.create([view.group.key.vchannel], wanted, exist_ok=True)

        class Earlier(GroupCalls):
            """Its answers are those of a server that ignores the mode."""

            async def _each(self, method, vchannels, request, *, repeatable=False):  # type: ignore[no-untyped-def]
                def without(vchannel: str):  # type: ignore[no-untyped-def]
                    made = request(vchannel)
                    made.mode = 0
                    return made

                return await super()._each(method, vchannels, without, repeatable=repeatable)

        earlier = Earlier(calls.owners, calls.deadline_s)
        wanted = NewGroup("g", 1000, "all", {}, GroupMode.BY_KEY)
        with pytest.raises(NotOffered, match="without ordered groups"):
            await earlier.create([view.group.key.vchannel], wanted, exist_ok=True)
