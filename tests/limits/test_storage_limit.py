"""Limits of storage, as clients meet them: whatever appends is refused, whoever reads is served."""

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from broker.client import Client, Txn, connect
from broker.client.errors import DeadlineExceeded, OutcomeUnknown, RateLimited, TidemarkError
from tests.limits.refusals import TRIES_MAX, refused
from tests.local_broker import local_broker
from tests.roles_processes import RoleProcess, owners

GUARD_S = 60.0
BODY = b"x" * 10_000
OVER = r"collection 'loud' has \d+ bytes stored, and its limit of storage is 100000; nothing was"
WARNED = "collection 'loud' has"


async def until(found: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(GUARD_S):
        while not await found():  # noqa: ASYNC110 - a live broker is looked at from outside
            await anyio.sleep(0.02)


async def limit(log: Client, limits: str) -> None:
    await log.config.set("limits", limits)


async def is_over(log: Client) -> bool:
    warnings = (await log.admin.health()).warnings
    return any(WARNED in it and "appends are refused" in it for it in warnings)


async def is_free(log: Client) -> bool:
    return not await is_over(log)


async def fill(log: Client, limits: str = "collection:loud storage=100000") -> None:
    """Append until the collection is beyond its limit, and known to be."""
    await limit(log, limits)
    await log.append_batch("loud", [BODY] * 11, deadline_s=GUARD_S)
    await until(lambda: is_over(log))


async def read(log: Client, name: str = "loud") -> int:
    return len([it async for it in log.read(name, start="all", until="now").messages()])


async def test_a_full_collection_takes_no_more_and_its_neighbour_does(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        await log.collections.create("loud", shards=1)
        await log.collections.create("quiet", shards=1)
        await fill(log)
        meters = broker.edge.meters
        tries = 0

        async def append(within_s: float) -> None:
            nonlocal tries
            before = meters.limit_refused
            try:
                await log.append("loud", b"never", deadline_s=within_s)
            finally:
                tries = meters.limit_refused - before
                assert tries <= 6 * max(within_s, 1.5), "it waits between tries"

        error = await refused(append, OVER, first_s=1.5)
        assert isinstance(error.__cause__, RateLimited)
        assert tries > 0
        await log.append("quiet", BODY, deadline_s=GUARD_S)
        assert await read(log) == 11
        await log.append("quiet", BODY, deadline_s=GUARD_S)


async def test_nothing_goes_around_it(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=2) as broker, connect(broker.address) as log:
        vchannel, _ = (await log.collections.create("loud", shards=2)).vchannels
        open_ones = [log.txn(vchannel, keepalive_s=600) for _ in range(TRIES_MAX)]
        for each in open_ones:
            await each.begin()
            await each.append(b"before")
        await fill(log)
        tried: list[Txn] = []

        async def in_a_transaction(within_s: float) -> None:
            # Each time in another one: an append of unknown outcome prevents the commit.
            tried.append(open_ones[len(tried)])
            await tried[-1].append(b"in a transaction", deadline_s=within_s)

        await refused(in_a_transaction, OVER)
        await tried[-1].commit()
        for each in {*open_ones} - {tried[-1]}:
            await each.rollback()
        async with log.stage("job", 1, 0, 0, run=1) as stage:
            await refused(lambda it: stage.append(vchannel, b"staged", deadline_s=it), OVER)
        later = datetime.now(UTC) + timedelta(hours=1)
        for again in (
            lambda it: log.append("loud", b"one", deadline_s=it),
            lambda it: log.append("loud", b"later", deliver_at=later, deadline_s=it),
            lambda it: log.append_batch("loud", [b"a", b"b"], deadline_s=it),
        ):
            await refused(again, OVER)
        await refused(
            lambda it: log.broadcast.append("loud", b"to all", deadline_s=it), OVER, OutcomeUnknown
        )
        assert await read(log) == 12, "what was in the transaction before is there"


@pytest.mark.parametrize("way", ["purge", "retention", "raise", "none"])
async def test_it_goes_on_without_a_restart_after(tmp_path: Path, way: str) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        await log.collections.create("loud", shards=1)
        await fill(log)
        landed: list[int] = []

        async def append() -> None:
            landed.append((await log.append("loud", b"after", deadline_s=GUARD_S)).id)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append)
            match way:
                case "purge":
                    cut = await log.cut("loud")
                    await log.purge("loud", upto=cut.tick)
                case "retention":
                    await log.collections.alter("loud", retention_ms=1000)
                case "raise":
                    await limit(log, "collection:loud storage=200000")
                case _:
                    await limit(log, "")
        assert len(landed) == 1
        await until(lambda: is_free(log))


async def test_after_a_restart_it_is_still_full(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        await log.collections.create("loud", shards=1)
        await fill(log)
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        await until(lambda: is_over(log))
        await refused(lambda it: log.append("loud", b"never", deadline_s=it), OVER)
        assert await read(log) == 11


async def test_each_collection_has_the_limit_of_a_rule_with_a_star(tmp_path: Path) -> None:
    async with local_broker(tmp_path, pchannels=1) as broker, connect(broker.address) as log:
        await log.collections.create("loud", shards=1)
        await fill(log, "collection:* storage=100000")
        await log.collections.create("late", shards=1)
        await log.append("late", BODY, deadline_s=GUARD_S)
        await refused(lambda it: log.append("loud", b"never", deadline_s=it), OVER)


async def test_a_limit_of_an_identity_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker, connect(broker.address) as log:
        with pytest.raises(TidemarkError, match="does not keep who wrote a message"):
            await limit(log, "identity:bob storage=10GiB")


async def test_the_limit_is_of_all_nodes_together(tmp_path: Path) -> None:
    command = ("serve", "--nodes", "2", "--pchannels", "2", "--listen", "127.0.0.1:0")
    with RoleProcess(*command, "--data-dir", str(tmp_path / "data")) as broker:
        async with connect(await broker.ready()) as log:
            first, second = (await log.collections.create("loud", shards=2)).vchannels
            await log.collections.create("quiet", shards=2)
            await limit(log, "collection:loud storage=100000")
            assert len(set((await owners(log)).values())) == 2
            for number in range(12):
                await log.append_batch((first, second)[number % 2], [BODY], deadline_s=GUARD_S)
            for vchannel in (first, second):
                await until_refused(log, vchannel)
            await refused(
                lambda it: log.broadcast.append("loud", b"to all", deadline_s=it),
                OVER,
                OutcomeUnknown,
            )
            await log.append("quiet", BODY, deadline_s=GUARD_S)
            assert await read(log) <= 30
            cut = await log.cut("loud")
            await log.purge("loud", upto=cut.tick)
            for vchannel in (first, second):
                await log.append_batch(vchannel, [BODY], deadline_s=GUARD_S)


async def until_refused(log: Client, vchannel: str) -> None:
    """Append until that is refused: the node looks every second."""
    within_s = 0.5
    with anyio.fail_after(GUARD_S):
        while True:
            try:
                await log.append_batch(vchannel, [b"x"], deadline_s=within_s)
            except (DeadlineExceeded, OutcomeUnknown) as error:
                if isinstance(error, DeadlineExceeded) and re.search(OVER, str(error)):
                    return
                within_s *= 2  # it had passed before a refusal came
            await anyio.sleep(0.5)
