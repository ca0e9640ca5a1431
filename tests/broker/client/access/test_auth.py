"""With a token: what the client may do, what it may not, and what it learns when it is revoked."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from broker.app import Broker
from broker.app.security.bootstrap import bootstrap_administrator
from broker.client import (
    Client,
    InvalidArgument,
    Message,
    NoSuchCollection,
    OutcomeUnknown,
    TidemarkError,
    connect,
)
from broker.client.errors import BadToken, NotAuthenticated, PermissionDenied
from broker.process_settings import Settings
from tests.local_broker import local_broker

pytestmark = pytest.mark.asyncio

ADMIN = "root"
GUARD_S = 60.0


@dataclass
class World:
    """A broker that controls access, and a client of its administrator."""

    broker: Broker
    root: Client
    token: str


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[tuple[World, Client]]:
    token = await bootstrap_administrator(Settings(data_dir=folder), ADMIN)
    async with (
        local_broker(folder, auth="on", pchannels=1) as broker,
        connect(broker.address, token=token) as root,
    ):
        yield World(broker, root, token), root


@asynccontextmanager
async def user(here: World, name: str, *grants: str) -> AsyncIterator[Client]:
    """A client of a new user with these grants."""
    await here.root.auth.add_role(f"of_{name}", grants)
    await here.root.auth.add_user(name, [f"of_{name}"])
    made = await here.root.auth.add_token(name)
    async with connect(here.broker.address, token=made.text) as log:
        yield log


async def denied(call: Awaitable[object]) -> str:
    with pytest.raises(PermissionDenied) as refused:
        with anyio.fail_after(GUARD_S):
            await call
    return refused.value.cause


@pytest.mark.parametrize("token", ["", "tm_00_" + "x" * 43, "eyJhbGciOiJub25lIn0.e30."])
async def test_connect_fails_at_once_without_a_token_that_is_known(
    tmp_path: Path, token: str
) -> None:
    async with world(tmp_path) as (here, _):
        with pytest.raises(NotAuthenticated, match="token"):
            async with connect(here.broker.address, token=token):
                raise AssertionError("connected")


@pytest.mark.parametrize("token", ["a\nb", "x" * 9000, "ü"])
async def test_a_text_that_cannot_be_sent_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(BadToken) as refused:
        async with connect("127.0.0.1:1", token=token):
            raise AssertionError("connected")
    assert token not in str(refused.value)


async def test_a_client_learns_who_it_is(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, root), user(here, "ann", "consume:collection:a") as ann:
        me = await ann.auth.who_am_i()
        assert (me.controlled, me.user, me.proof) == (True, "ann", "token")
        assert me.grants == ("consume:collection:a",)
        assert (await root.auth.who_am_i()).grants == ("*:*:*",)


async def test_users_roles_and_tokens_are_made_shown_and_removed(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, root):
        await root.auth.add_role("r", ["consume:collection:a"])
        await root.auth.set_role("r", ["consume:collection:b"])
        await root.auth.add_user("ann")
        await root.auth.set_user("ann", ["r"])
        made = await root.auth.add_token("ann", ttl=timedelta(days=1), note="a note")
        assert made.info.expires_ms - made.info.made_ms == 86_400_000
        assert made.text not in repr(made)
        found = await root.auth.show()
        assert [(it.name, it.roles) for it in found.users] == [
            ("ann", ("r",)),
            (ADMIN, ("admin",)),
        ]
        stored = [it for it in found.roles if not it.built_in]
        assert [(it.name, it.grants) for it in stored] == [("r", ("consume:collection:b",))]
        assert made.info in found.tokens
        assert made.text.split("_", 2)[2] not in repr(found)
        async with connect(here.broker.address, token=made.text) as ann:
            assert (await ann.auth.who_am_i()).expires_ms == made.info.expires_ms
            await root.auth.revoke_token(made.info.id)
            with pytest.raises(NotAuthenticated):
                await ann.auth.who_am_i()
        await root.auth.drop_user("ann")
        await root.auth.drop_role("r")
        found = await root.auth.show()
        assert [it.name for it in found.users] == [ADMIN]


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(days=-1), timedelta(days=4000)])
async def test_a_token_that_lasts_no_time_or_for_ages_is_refused(
    tmp_path: Path, ttl: timedelta
) -> None:
    async with world(tmp_path) as (_, root):
        with pytest.raises(InvalidArgument, match="a token for"):
            await root.auth.add_token(ADMIN, ttl=ttl)


async def test_only_administrators_change_users(tmp_path: Path) -> None:
    async with (
        world(tmp_path) as (here, _),
        user(here, "ann", "*:collection:*", "observe:*:*") as ann,
    ):
        for call in (
            ann.auth.show(),
            ann.auth.add_user("eve", ["admin"]),
            ann.auth.set_user("ann", ["admin"]),
            ann.auth.add_token(ADMIN),
            ann.auth.drop_user(ADMIN),
        ):
            assert "may not administer this cluster" in await denied(call)


async def test_a_collection_is_used_as_far_as_the_grants_go(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, root):
        await root.collections.create("orders", shards=2)
        await root.collections.create("secret", shards=1)
        async with user(here, "w", "produce:collection:orders") as writer:
            await writer.append("orders", b"1", key=b"k")
            await writer.append_batch("orders", [b"2", b"3"])
            await writer.append_messages("orders", [Message(b"4"), Message(b"5")])
            assert "may not consume channel" in await denied(first(writer, "orders"))
            for name in ("secret", "nothing"):
                assert "may not see" in await denied(writer.append(name, b"x"))
        async with user(here, "r", "consume:collection:orders") as reader:
            found = [
                message.payload
                async for batch in reader.read("orders", start="all", until="now")
                for message in batch.messages
            ]
            assert sorted(found) == [b"1", b"2", b"3", b"4", b"5"]
            assert "may not append to channel" in await denied(reader.append("orders", b"6"))
            assert "may not define" in await denied(reader.collections.drop("orders"))
            assert "may not define" in await denied(reader.purge("orders", upto=1))
        with pytest.raises(NoSuchCollection):
            await root.append("nothing", b"x")


async def first(log: Client, target: str) -> object:
    """The first message of a target."""
    async for batch in log.read(target, start="all"):
        for message in batch.messages:
            return message.payload
    return None


async def test_a_transaction_needs_its_right_and_that_of_its_messages(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, root):
        vchannel = (await root.collections.create("orders", shards=1)).vchannels[0]
        both = ("produce:collection:orders", "txn:collection:orders")
        for name, grants in (("p", both[:1]), ("t", both[1:]), ("b", both)):
            async with user(here, name, *grants) as log:
                if name == "b":
                    async with log.txn(vchannel) as txn:
                        await txn.append(b"x")
                else:
                    await denied(in_txn(log, vchannel))


async def in_txn(log: Client, vchannel: str) -> None:
    async with log.txn(vchannel) as txn:
        await txn.append(b"x")


async def test_a_cursor_is_one_of_those_that_the_grants_name(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, root):
        await root.collections.create("orders", shards=1)
        grants = ("consume:collection:orders", "consume:cursor:mine-*")
        async with user(here, "ann", *grants) as ann:
            await ann.cursor("mine-1").reset("all", "orders")
            await ann.cursor("mine-1").get()
            await ann.cursor("mine-1").drop()
            assert "cursor 'other'" in await denied(ann.cursor("other").reset("all", "orders"))
            assert "cursor 'other'" in await denied(ann.cursor("other").get())
            assert await ann.cursors.list() == []
        async with user(here, "eve", "consume:cursor:*") as eve:
            assert "may not see" in await denied(eve.cursor("c").reset("all", "orders"))


async def test_a_group_needs_its_right_and_that_of_its_messages(tmp_path: Path) -> None:
    async with world(tmp_path) as (here, root):
        await root.collections.create("orders", shards=1)
        await root.append("orders", b"x")
        grants = ("consume:collection:orders", "group:group:workers")
        async with user(here, "ann", *grants) as ann:
            async with ann.group("workers").join("orders") as member:
                with anyio.fail_after(GUARD_S):
                    await (await member.__anext__()).ack()
            assert "group 'others'" in await denied(ann.group("others").create("orders"))
        # Also who may append to what they read: a group decides what is delivered.
        for sight in ("observe", "produce"):
            grants = ("group:group:*", f"{sight}:collection:*")
            async with user(here, f"eve-{sight}", *grants) as eve:
                assert "may not consume" in await denied(of_group(eve))
                workers = eve.group("workers")
                for change in (
                    workers.create("orders", exist_ok=True),
                    workers.alter("orders", lease_s=60.0),
                    workers.seek("orders", "latest"),
                    workers.drop("orders"),
                ):
                    assert "may not consume" in await denied(change)


async def of_group(log: Client) -> None:
    async with log.group("workers").join("orders") as member:
        await member.__anext__()


async def _reads(log: Client) -> None:
    async for _ in log.read("orders", start="all"):
        pass


async def _appends(log: Client) -> None:
    while True:
        await log.append("orders", b"x")


@pytest.mark.parametrize("work", [_reads, _appends])
async def test_work_in_progress_ends_with_the_reason_when_the_grant_is_taken_away(
    tmp_path: Path,
    work: Callable[[Client], Awaitable[object]],
) -> None:
    async with world(tmp_path) as (here, root):
        await root.collections.create("orders", shards=1)
        async with user(here, "ann", "*:collection:orders") as ann:
            ended: list[TidemarkError] = []

            async def run() -> None:
                try:
                    await work(ann)
                except TidemarkError as error:
                    ended.append(error)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                with anyio.fail_after(GUARD_S):
                    while not streams_of(here):
                        await anyio.lowlevel.checkpoint()
                    await root.auth.set_role("of_ann", ["consume:collection:nothing"])
            # An append that was on its way when the stream ended may have been stored.
            assert isinstance(ended[0], PermissionDenied | OutcomeUnknown)
            if work is _reads:
                assert isinstance(ended[0], PermissionDenied)
            await denied(ann.append("orders", b"x"))


def streams_of(here: World) -> int:
    """Streams of appends and reads that are open."""
    meters = here.broker.edge.meters.channels.values()
    return sum([it.producers + it.consumers for it in meters])
