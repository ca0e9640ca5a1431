"""Dead letters are appended again, each once, whoever else does it and whatever fails."""

import asyncio
import re
from collections import Counter
from pathlib import Path

import anyio
import pytest

from broker.client import Client, Message
from broker.client.errors import BadTarget, NoSuchCollection, NoSuchCursor, NoSuchVChannel
from broker.client.groups.consumer_group import ConsumerGroup
from broker.client.groups.redrive import old_cursor, redrive_group
from broker.core.groups.group_rules import name_refusal
from broker.core.naming import pchannel_of
from tests.broker.client.groups.test_groups import running, take, until_empty

LETTERS = 60


async def all_die(log: Client) -> None:
    await log.collections.create("trains", shards=3)
    messages = [Message(b"%d" % it, key=b"k%d" % it) for it in range(LETTERS)]
    await log.append_messages("trains", messages, atomic=False)
    group = log.group("workers")
    await group.create("trains", deliveries_max=5)
    rejected = 0
    async with group.join("trains") as member:
        while rejected < LETTERS:
            batch = await take(member)
            rejected += len(batch)
            await batch.reject("not today")
    while any(it.group.dying for it in await group.describe("trains")):
        pass
    await until_empty(log, "workers")


async def made_again(log: Client) -> ConsumerGroup:
    """The group of a collection that was dropped since, with one more dead letter, "late"."""
    await log.collections.drop("trains")
    await log.collections.create("trains", shards=1)
    await log.append("trains", b"late")
    group = log.group("workers")
    await group.create("trains", deliveries_max=5)
    async with group.join("trains") as member:
        await (await take(member)).reject("too late")
    while len(await group.dead()) == LETTERS:
        pass
    return group


async def counted(log: Client) -> Counter[bytes]:
    batches = [it async for it in log.read("trains", until="now")]
    return Counter([message.payload for batch in batches for message in batch.messages])


TWICE = Counter({b"%d" % it: 2 for it in range(LETTERS)})


async def test_two_at_once_append_each_letter_once_between_them(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await all_die(log)
        group = log.group("workers")
        both = await asyncio.gather(group.redrive("trains"), group.redrive("trains"))
        assert sum(both) == LETTERS
        assert await counted(log) == TWICE
        assert await group.redrive("trains") == 0


async def test_one_that_is_stopped_at_any_moment_is_completed_by_the_next(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await all_die(log)
        group = log.group("workers")
        for pause_s in (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3):
            with anyio.move_on_after(pause_s):
                await group.redrive("trains")
        await group.redrive("trains")
        assert await counted(log) == TWICE


async def test_a_list_of_dead_letters_may_be_cut_and_says_which_the_broker_vouches_for(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_, log):
        await all_die(log)
        group = log.group("workers")
        (letter,) = await group.dead(most=1)
        assert len(await group.dead()) == LETTERS
        with pytest.raises(BadTarget, match="0 dead letters are asked for"):
            await group.dead(most=0)
        forged = letter.message.properties
        assert forged["dead.group"] == "workers"
        await log.append("workers.dead", b"forged", properties=forged)
        await log.append("workers.dead", b"no letter")
        letters = await group.dead()
        assert len(letters) == LETTERS + 1
        assert [it.message.payload for it in letters if not it.marked] == [b"forged"]
        await log.collections.drop("workers.dead")
        for call in (group.dead(), group.redrive("trains")):
            with pytest.raises(NoSuchCollection, match="or their collection was dropped"):
                await call


async def test_letters_of_a_collection_that_was_made_again_are_named_and_left(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_, log):
        await all_die(log)
        before = await log.group("workers").dead()
        group = await made_again(log)
        for appended in (1, 0):
            told = f"^{LETTERS} dead letters of 'trains' are left.*; {appended} others were"
            with pytest.raises(NoSuchVChannel, match=told) as caught:
                await group.redrive("trains")
            assert f"and {LETTERS - 10} more;" in str(caught.value)
            named = sum([f"{it.id} of {it.vchannel}" in str(caught.value) for it in before])
            assert named >= 10
        assert await counted(log) == {b"late": 2}
        # The way out that the error names.
        found = re.search(r'to \("tick", (\d+)\)', str(caught.value))
        assert found is not None
        way_out = ("tick", int(found[1]))
        await log.group(redrive_group("trains")).seek("workers.dead", way_out)
        assert await group.redrive("trains") == 0


async def test_what_another_redrive_holds_is_waited_for_before_letters_are_called_left(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_, log):
        await all_die(log)
        group = await made_again(log)
        # As one that dies before its commit.
        async with log.group(redrive_group("trains")).join("workers.dead") as other:
            late = None
            while late is None:
                batch = await take(other)
                late = next((it for it in batch.messages if it.payload == b"late"), None)
            async with log.staged() as out:
                await out.ack(batch, [late])
                await other.close()
                with anyio.move_on_after(3.0):
                    await group.redrive("trains")
                await out.discard()
        told = f"^{LETTERS} dead letters of 'trains' are left.*; 1 others were appended. Append"
        with pytest.raises(NoSuchVChannel, match=told):
            await group.redrive("trains")
        assert await counted(log) == {b"late": 2}


@pytest.mark.parametrize("collection_first", [True, False])
async def test_a_vchannel_by_name_and_its_collection_append_each_letter_once_between_them(
    tmp_path: Path, collection_first: bool
) -> None:
    async with running(tmp_path) as (_, log):
        await all_die(log)
        group = log.group("workers")
        (one, *_) = (await log.collections.get("trains")).vchannels
        of_one = sum([it.vchannel == one for it in await group.dead()])
        assert 0 < of_one < LETTERS
        first, second = ("trains", one) if collection_first else (one, "trains")
        appended = [await group.redrive(first), await group.redrive(second)]
        assert appended == ([LETTERS, 0] if collection_first else [of_one, LETTERS - of_one])
        assert await counted(log) == TWICE


async def unmarked(log: Client) -> None:
    """Have the dead letters in a new collection, as releases without marks have written them."""
    before = await log.group("workers").dead()
    await log.collections.drop("workers.dead")
    await log.group("workers").alter("trains", deliveries_max=5)
    for it in before:
        place = it.message.vchannel
        found = await log.collections.get("workers.dead")
        (again,) = [each for each in found.vchannels if pchannel_of(each) == pchannel_of(place)]
        message = it.message
        await log.append(again, message.payload, key=message.key, properties=message.properties)


async def test_letters_of_releases_that_did_not_mark_them_are_listed_and_appended_once(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_, log):
        await all_die(log)
        await unmarked(log)
        group = log.group("workers")
        letters = await group.dead()
        assert len(letters) == LETTERS
        assert not any(it.marked for it in letters)
        assert await group.redrive("trains") == LETTERS
        assert await group.redrive("trains") == 0
        assert await counted(log) == TWICE


async def test_what_an_older_release_has_appended_again_is_left_out(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await all_die(log)
        await unmarked(log)
        # As that release did: it read in batches, and knew by a cursor what was done.
        done = 0
        cursor = old_cursor("workers", "trains")
        async with log.read_batches("workers.dead", start=log.cursor(cursor), until="now") as old:
            async for batch in old:
                done += len(batch)
                await old.commit()
                if done:
                    break
        assert 0 < done < LETTERS
        assert await log.group("workers").redrive("trains") == LETTERS - done
        assert await log.group("workers").redrive("trains") == 0
        with pytest.raises(NoSuchCursor):
            await log.cursor(cursor).get()


async def test_dead_letters_whose_collection_was_dropped_wait_for_a_new_one(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_, log):
        await all_die(log)
        group = log.group("workers")
        await log.collections.drop("workers.dead")
        await log.append("trains", b"late")
        async with group.join("trains") as member:
            await (await take(member)).reject("too late")
        while not any(it.trouble for it in await group.describe("trains")):
            pass
        troubles = {it.trouble for it in await group.describe("trains")} - {""}
        assert "alter the group" in str(troubles)
        await until_empty(log, "workers")
        await group.alter("trains", deliveries_max=5)
        while any(it.group.dying for it in await group.describe("trains")):
            pass
        assert [it.message.payload for it in await group.dead()] == [b"late"]


@pytest.mark.parametrize("target", ["trains", "x" * 200, "a$b", "by-dev-rootcoord-dml_0_7v0"])
def test_the_group_of_a_target_has_a_name_that_a_group_can_have(target: str) -> None:
    name = redrive_group(target)
    assert name_refusal(name) is None
    assert name == redrive_group(target) != redrive_group(f"{target}s")
