"""What groups refuse, each with what is wrong and what to do; see the table in tests/README.md."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.client.cluster.service import ServiceCalls
from broker.client.errors import BadTarget, InvalidArgument, NoSuchCollection, ResourceAcquired
from broker.client.groups.group_calls import GroupStart
from broker.client.net.connection import Connection
from broker.core.groups import group_rules
from broker.edge.groups import groups_service
from broker.node.groups import group_keeper
from broker.node.state import channel_groups
from schemas.generated.tidemark import v1
from tests.broker.client.groups.test_groups import running


@pytest.mark.parametrize(
    ("start", "error", "told"),
    [
        (("tick", 1 << 62), InvalidArgument, r"is not between 0 and \d+, the newest closed one"),
        (datetime.now(UTC) + timedelta(days=2), InvalidArgument, "is not between 0 and"),
        (("tick", -1), BadTarget, "use 'all', 'latest'"),
        ("soon", BadTarget, "use 'all', 'latest'"),
    ],
)
async def test_a_group_cannot_be_sought_outside_of_the_log(
    tmp_path: Path, start: GroupStart, error: type[Exception], told: str
) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains", shards=1)
        group = log.group("workers")
        await group.create("trains")
        with pytest.raises(error, match=told):
            await group.seek("trains", start)
        # Before every message: it begins with the first that is left.
        (view,) = await group.seek("trains", datetime(1990, 1, 1, tzinfo=UTC))
        await log.append("trains", b"a")
        async with group.join("trains") as member:
            assert (await member.__anext__()).payloads == [b"a"]
        assert view.group.acked == ()


async def test_groups_beyond_the_limit_are_refused_and_those_that_are_there_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert group_rules.GROUPS_MAX == 4096
    monkeypatch.setattr(group_keeper, "GROUPS_MAX", 50)
    async with running(tmp_path) as (_, log):
        created = await log.collections.create("trains", shards=1)
        made = [log.group(f"g{number}").create("trains") for number in range(60)]
        results = await asyncio.gather(*made, return_exceptions=True)
        refused = [it for it in results if isinstance(it, BaseException)]
        assert len(refused) == 10
        for each in refused:
            assert isinstance(each, ResourceAcquired)
            assert "has 50 groups already, the limit; drop some" in str(each)
        assert len(await log.groups.list("trains")) == 50
        assert created.name == "trains"


async def test_creations_beyond_the_limit_are_refused_before_those_in_the_line_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_groups, "GROUPS_MAX", 50)
    ends: list[bool] = []
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains", shards=1)

        async def create(name: str) -> None:
            try:
                await log.group(name).create("trains")
            except ResourceAcquired as error:
                ends.append("the limit is 50; drop some" not in str(error))
            else:
                ends.append(True)

        async with asyncio.TaskGroup() as tasks:
            for number in range(80):
                tasks.create_task(create(f"g{number}"))
        assert sorted(ends) == [False] * 30 + [True] * 50
        # What is there may be asked for again, and what was dropped makes room.
        await log.group("g0").create("trains", exist_ok=True)
        await log.group("g0").drop("trains")
        await log.group("late").create("trains")


async def test_a_long_list_comes_in_pages_and_a_bad_page_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups_service, "PAGE_MAX", 7)
    async with running(tmp_path) as (broker, log):
        (vchannel,) = (await log.collections.create("trains", shards=1)).vchannels
        names = sorted(f"g{number}" for number in range(24))
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(log.group(name).create("trains"))
        assert [it.group.key.name for it in await log.groups.list("trains")] == names
        some = await log.groups.list("trains", most=10)
        assert [it.group.key.name for it in some] == names[:10]
        with pytest.raises(BadTarget, match="0 groups are asked for"):
            await log.groups.list("trains", most=0)
        monkeypatch.setattr(groups_service, "PAGE_BYTES", 1)
        assert len(await log.groups.list("trains")) == len(names)
        calls = log.groups.named("g0")._parts.calls
        connection = calls.owners._network.connection(broker.address)
        service = ServiceCalls(connection, "tidemark.v1.Groups", deadline_s=10)
        for request, told in (
            (v1.ListGroupsRequest(vchannels=[vchannel], page="soon"), "page 'soon' is none"),
            (v1.ListGroupsRequest(vchannels=[vchannel], page_size=-1), "a page of -1 groups"),
        ):
            with pytest.raises(InvalidArgument, match=told):
                await service.ask("List", request, v1.ListGroupsResponse)


async def test_no_group_is_made_or_joined_on_a_collection_that_was_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_keeper, "DROPPED_S", 1.0)
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains", shards=1)
        (vchannel,) = (await log.collections.get("trains")).vchannels
        await log.group("old").create("trains")
        await log.collections.drop("trains")
        with pytest.raises(NoSuchCollection, match="there is no collection 'trains'"):
            await log.group("workers").create("trains")
        for name in ("workers", "old"):
            with pytest.raises(InvalidArgument, match=r"was dropped; look up the vchannels"):
                await log.group(name).create(vchannel, exist_ok=True)
            with pytest.raises(InvalidArgument, match=r"was dropped; look up the vchannels"):
                async with log.group(name).join(vchannel) as member:
                    await member.__anext__()
        # Nobody drops it, and it would hold the log.
        while await log.groups.list_on([vchannel]):
            pass


async def test_an_unknown_mode_and_a_gift_to_nobody_are_told_apart(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, log):
        await log.collections.create("trains", shards=1)
        group = log.group("steps", mode="ordered", by="vchannel")
        (view,) = await group.create("trains")
        vchannel = view.group.key.vchannel

        async def ask(connection: Connection, _: Sequence[str]) -> object:
            calls = ServiceCalls(connection, "tidemark.v1.Groups", deadline_s=10)
            later = v1.CreateGroupRequest(vchannel=vchannel, group="g", mode=v1.GroupMode(9))
            return await calls.ask("Create", later, v1.GroupInfo)

        with pytest.raises(InvalidArgument, match="mode 9 of a group is not known"):
            await log.groups._parts.calls.owners.ask([vchannel], ask)
        async with group.join("trains", member="ann") as member:
            await log.append("trains", b"a")
            await (await member.__anext__()).ack()
            for stream in list(member._streams):
                stream.give("nobody")
            await log.append("trains", b"b")
            assert (await member.__anext__()).payloads == [b"b"], "ann owns it as before"
