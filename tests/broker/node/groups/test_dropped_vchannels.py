"""Who says that a vchannel was dropped, and how often the catalog is asked."""

from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from actors.testing import run_seeded
from broker.model.failure import Refused, StreamingCode
from broker.model.groups.consumer_group import GroupView
from broker.model.ids import TimeTick
from broker.node.group_messages import AlterGroup, RejectMessages, SeekGroup
from broker.node.groups import dropped_vchannels
from broker.node.groups.dropped_vchannels import DroppedVChannels
from broker.ports.row_schemas import CatalogVersion, NoRowSchemas, NoShard, Shard
from tests.broker.node.groups.test_dead_letters import DEAD, create, dead, rows
from tests.broker.node.groups.test_group_leases import KEY, join, keeper, shown
from tests.broker.node.world import appended, running_node

LOG, CATALOG, AGAIN, ALIVE = "in the log", "in the catalog", "made again", "alive"


class Catalog(NoRowSchemas):
    def __init__(self) -> None:
        self.drops = 1
        self.asked: list[str] = []
        self.gone = {CATALOG, AGAIN}
        self.silent = self.away = False

    async def version(self) -> CatalogVersion:
        if self.silent:
            await anyio.sleep_forever()
        if self.away:
            raise Refused(StreamingCode.INNER, "the store is busy")
        return CatalogVersion(7, self.drops)

    async def shard(self, vchannel: str) -> Shard | NoShard:
        self.asked.append(vchannel)
        return NoShard.DROPPED if vchannel in self.gone else Shard("c", rows=False)


def dropped(catalog: Catalog) -> DroppedVChannels:
    segments = SimpleNamespace(dropped={LOG: 1}, collections={AGAIN: object()})
    opened: Any = SimpleNamespace(segments=segments)
    return DroppedVChannels(opened, catalog)


async def test_the_log_and_the_catalog_both_tell_and_one_that_is_there_again_is_not() -> None:
    catalog = Catalog()
    found = dropped(catalog)
    assert await found.among([LOG, CATALOG, AGAIN, ALIVE]) == {LOG, CATALOG}
    assert sorted(catalog.asked) == [ALIVE, CATALOG]
    assert await found.among([LOG]) == {LOG}
    assert await found.among([]) == set()


async def test_what_is_alive_is_asked_about_again_after_another_drop_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dropped_vchannels, "VERSION_S", 0.0)
    catalog = Catalog()
    found = dropped(catalog)
    for _ in range(3):
        assert await found.among([ALIVE]) == set()
    assert catalog.asked == [ALIVE]
    catalog.drops, catalog.gone = 2, {ALIVE}
    assert await found.among([ALIVE]) == {ALIVE}
    assert catalog.asked == [ALIVE, ALIVE]


async def test_many_questions_at_once_read_the_version_of_the_catalog_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dropped_vchannels, "VERSION_S", 1000.0)
    catalog = Catalog()
    found = dropped(catalog)
    assert await found.among([ALIVE]) == set()
    catalog.drops, catalog.gone = 2, {ALIVE}
    assert await found.among([ALIVE]) == set(), "it is not asked again so soon"


async def test_an_answer_from_before_a_drop_is_not_kept_for_the_time_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dropped_vchannels, "VERSION_S", 0.0)
    asked, answers = anyio.Event(), anyio.Event()

    class Slow(Catalog):
        async def shard(self, vchannel: str) -> Shard | NoShard:
            found = await super().shard(vchannel)
            if len(self.asked) == 1:
                asked.set()
                await answers.wait()
            return found

    catalog = Slow()
    found = dropped(catalog)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.among, [ALIVE])
        await asked.wait()
        catalog.drops, catalog.gone = 2, {ALIVE}
        assert await found.among([CATALOG]) == set()
        answers.set()
    assert await found.among([ALIVE]) == {ALIVE}


@pytest.mark.parametrize("fault", ["silent", "away"])
async def test_without_an_answer_of_the_catalog_the_log_alone_counts(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropped_vchannels, "ANSWER_S", 0.05)
    catalog = Catalog()
    setattr(catalog, fault, True)
    assert await dropped(catalog).among([LOG, CATALOG]) == {LOG}


@pytest.mark.parametrize(("fault", "told"), [("silent", "within 5.0 s"), ("away", "is busy")])
@pytest.mark.parametrize("gone", [False, True])
def test_what_dies_waits_until_the_catalog_says_whether_the_dead_letters_were_dropped(
    fault: str, told: str, gone: bool
) -> None:
    """A copy in a dropped collection is lost, and its message acknowledged."""

    async def scenario() -> None:
        catalog = Catalog()
        async with running_node(catalog=catalog) as world:
            await world.assign()
            await create(world)
            appended(await world.append(rows("a")))
            worker = await join(world)
            leased = await worker.take()
            # The log has no drop of a plain collection of clients.
            catalog.drops, catalog.gone = 2, {DEAD} if gone else set()
            setattr(catalog, fault, True)
            reject = RejectMessages(worker.joined.member, leased.lease, (), "bad")
            assert await worker.group.ask(reject, deadline_s=60) is None
            await world.clock.sleep(100)
            view = await shown(world)
            assert "dead letters cannot be written" in view.trouble
            assert told in view.trouble
            assert view.group.dying
            assert await dead(world) == []
            setattr(catalog, fault, False)
            await world.clock.sleep(60)
            view = await shown(world)
            assert ("was dropped; alter the group" in view.trouble) == gone == bool(view.trouble)
            assert bool(view.group.dying) == gone
            assert [it.payload for it in await dead(world)] == ([] if gone else [b"a"])

    run_seeded(1, scenario)


@pytest.mark.parametrize("change", [AlterGroup(KEY, None, None), SeekGroup(KEY, TimeTick(0))])
def test_no_trouble_is_told_of_once_a_change_of_the_group_has_nothing_dying(
    change: AlterGroup | SeekGroup,
) -> None:
    async def scenario() -> None:
        catalog = Catalog()
        async with running_node(catalog=catalog) as world:
            await world.assign()
            await create(world)
            appended(await world.append(rows("a")))
            worker = await join(world)
            leased = await worker.take()
            catalog.drops, catalog.silent = 2, True
            reject = RejectMessages(worker.joined.member, leased.lease, (), "bad")
            assert await worker.group.ask(reject, deadline_s=60) is None
            worker.leave()
            await world.clock.sleep(2)  # it is being asked whether the dead letters were dropped
            answer = await (await keeper(world)).ask(change, deadline_s=60)
            assert isinstance(answer, GroupView), answer
            catalog.silent = False
            await world.clock.sleep(60)
            view = await shown(world)
            assert not view.group.dying
            assert not view.trouble

    run_seeded(1, scenario)
