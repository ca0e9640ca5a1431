"""A switch whose steps fail once, or again and again, or are overtaken; it ends all the same."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from actors import PlannedRestart
from broker.app.stores.log_place import CHANNEL_PREFIX, decode_alter, decode_channel
from broker.app.switching.channel_switch import NextTerm
from broker.app.switching.switch_pauses import RENEW_S, RENEW_S_MAX
from broker.coordinator.records import ALTER_KEY, CLUSTER_KEY, Cluster, encode_cluster
from broker.core.cluster.wal_alter import SEGMENTED, Alter, AlterStage
from broker.meta.memory_store import MemoryMetaStore
from broker.model.ids import PChannelName
from broker.model.retention.policy import Retention
from broker.ports.meta import MetaError
from broker.ports.switching.log_switch import Work
from broker.ports.wal import NotNow, NotStored, Unsuitable, WriterFailed
from broker.wal.kafka.partition import Unavailable
from tests.broker.app.switching.test_channel_switch import filled
from tests.broker.app.switching.wal_world import KAFKA, NAMES, Process, World
from tests.broker.wal.kafka.topic_in_memory import MemoryTopics

FIRST, SECOND = NAMES
RETENTION_CHANGED = "topic tides.c has retention.ms=1000; the log needs -1"


async def at_rest(work: Work) -> None:
    await work()


async def away(_: MemoryTopics, channel: PChannelName) -> str:
    return f"{channel}: Kafka does not answer"


def before_writes(
    patch: pytest.MonkeyPatch, world: World, act: Callable[[Mapping[str, bytes]], Awaitable[None]]
) -> None:
    """Have something done before each write of the metadata; it is not written if that raises."""
    write = world.store.write

    async def meddled(
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        await act(puts)
        return await write(puts, deletes=deletes, expect=expect)

    patch.setattr(world.store, "write", meddled)


def refusing(error: Exception) -> Callable[[MemoryTopics, str, int], Awaitable[None]]:
    async def refuse(_: MemoryTopics, channel: str, term: int) -> None:
        raise error

    return refuse


def refuse_openings(patch: pytest.MonkeyPatch, error: Exception) -> None:
    for opening in ("open", "open_anew"):
        patch.setattr(MemoryTopics, opening, refusing(error))


async def step(process: Process, name: PChannelName) -> bool:
    """What the WalSwitcher of a node does for one of its pchannels."""
    try:
        return await process.switch.step(name, process.logs[name], at_rest)
    except PlannedRestart:
        await process.open(name)
        return False


async def until_ended(owners: Mapping[PChannelName, Process]) -> Alter:
    """As `Process.until_ended`, of pchannels that several processes have."""
    places = owners[FIRST].places
    for _ in range(100):
        for name, process in owners.items():
            process.looks += 1
            if await process.switch.look():
                await step(process, name)
            await process.switch.advance()
        alter = await places.alter()
        if alter is not None and alter.ended:
            return alter
    raise AssertionError(await places.progress())


async def test_the_place_of_a_pchannel_that_has_left_keeps_no_other_from_opening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await filled(KAFKA)
    async with world.process() as one, world.process() as other:
        await one.start()
        await one.logs.pop(FIRST).close()  # the balancer moves it
        await other.open(FIRST)
        await one.begin(SEGMENTED)
        alter = await until_ended({FIRST: other, SECOND: one})
        assert (alter.stage, alter.place) == (AlterStage.DONE, SEGMENTED)
        monkeypatch.setattr(MemoryTopics, "why_unwritable", away)  # Kafka is switched off
        for process in (one, other):
            # An opening, or a look after a failure, asks this first.
            assert [await process.wal.why_unwritable(it) for it in NAMES] == ["", ""]
        await one.logs.pop(SECOND).close()
        assert await one.wal.why_unwritable(SECOND) == "", "also when it opens its only one"


async def test_a_pchannel_in_a_kafka_that_is_away_is_not_opened_and_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await filled(SEGMENTED)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        for _ in range(100):
            process.looks += 1
            if await process.switch.look():
                await step(process, FIRST)
                if process.logs[FIRST].place != KAFKA:
                    await step(process, SECOND)
            await process.switch.advance()
            if process.logs[FIRST].place == KAFKA:
                break
        monkeypatch.setattr(MemoryTopics, "why_unwritable", away)
        assert process.logs[SECOND].place == SEGMENTED
        assert await process.wal.why_unwritable(SECOND) == ""
        assert "does not answer" in await process.wal.why_unwritable(FIRST)


async def test_a_copy_is_begun_again_after_kafka_could_not_delete_once() -> None:
    world = await filled(SEGMENTED)
    failures = ["once"]

    def in_kafka(what: str) -> None:
        if what == "delete" and failures:
            failures.pop()
            raise Unavailable("Kafka does not answer")

    world._in_kafka = in_kafka  # type: ignore[method-assign]
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        assert (await process.until_ended()).stage is AlterStage.DONE
        await process.check()


async def test_a_copy_whose_begin_could_not_be_recorded_is_begun_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await filled(SEGMENTED)
    failures = ["once"]

    async def refuse(puts: Mapping[str, bytes]) -> None:
        if failures and any(it.startswith(CHANNEL_PREFIX) for it in puts):
            failures.pop()
            raise MetaError("the metadata does not answer")

    before_writes(monkeypatch, world, refuse)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        with suppress(MetaError):  # as the WalSwitcher does: it looks again
            await process.look()
        assert not failures
        assert (await process.until_ended()).stage is AlterStage.DONE
        await process.check()


async def test_what_retention_would_remove_before_a_copy_goes_on_is_held() -> None:
    world = await filled(SEGMENTED)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        for _ in range(20):
            await process.steps()  # all is copied and compared; then the process dies
    async with world.process() as process:
        await process.start()
        log = process.logs[FIRST]
        first_id = await log.truncate(log.bounds().next_id, Retention(bytes_max=1), 0)
        removed_tick = log.bounds().removed_tick
        assert (await process.until_ended()).stage is AlterStage.DONE
        bounds = process.logs[FIRST].bounds()
        assert bounds.first_id >= first_id
        assert bounds.removed_tick >= removed_tick


async def test_space_that_would_be_given_back_before_a_copy_goes_on_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await filled(SEGMENTED)

    async def die(puts: Mapping[str, bytes]) -> None:
        for key, value in puts.items():
            if key.startswith(CHANNEL_PREFIX) and decode_channel(key, value).close:
                raise MetaError("the process dies before it records how far the copy is")

    with monkeypatch.context() as patched:
        before_writes(patched, world, die)
        async with world.process() as process:
            await process.start()
            await process.begin(KAFKA)
            with suppress(MetaError):
                await process.steps()
    async with world.process() as process:
        await process.start()
        log = process.logs[FIRST]
        assert log.segments() == ()
        segments = log.driver.segments()
        with pytest.raises(NotNow):
            await log.thin(segments[0], lambda it: () if it.base_id == 1 else None)
        assert (await process.until_ended()).stage is AlterStage.DONE
        await process.check()


async def test_a_pchannel_that_the_cluster_gains_while_the_others_have_switched_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(founded=SEGMENTED)

    async def grow(*names: PChannelName) -> None:
        # As a coordinator does before the Assigner gives a pchannel to anybody.
        cluster = encode_cluster(Cluster(names, FIRST, "c"))
        await MemoryMetaStore.write(world.store, {CLUSTER_KEY: cluster})

    await grow(FIRST)
    async with world.process() as process:
        await process.open(FIRST)
        await process.append(FIRST, 40, size=150)
        await process.begin(KAFKA)

        async def gain(puts: Mapping[str, bytes]) -> None:
            drops = ALTER_KEY in puts and decode_alter(puts[ALTER_KEY]).stage is AlterStage.DROPPING
            if drops and SECOND not in process.logs:
                await grow(FIRST, SECOND)
                await process.open(SECOND)
                await process.append(SECOND, 3)

        before_writes(monkeypatch, world, gain)
        for _ in range(60):
            process.looks += 1
            if not await process.switch.look():
                break
            for name in [*process.logs]:
                await step(process, name)
            await process.switch.advance()
        alter = await process.places.alter()
        assert alter is not None
        assert alter.stage is AlterStage.DONE
        await process.check()
    async with world.process() as process:
        await process.start()
        await process.check()


@pytest.mark.parametrize(
    ("refusal", "restarts_max"),
    [
        (Unsuitable(RETENTION_CHANGED), 0),  # before anything is claimed
        (NotStored("this user may not write to the topic"), 8),
    ],
)
async def test_a_target_that_refuses_for_good_restarts_pchannels_seldom_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception, restarts_max: int
) -> None:
    world = await filled(SEGMENTED)
    refuse_openings(monkeypatch, refusal)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        before = {name: it.term for name, it in process.logs.items()}
        looks = int(2 * RENEW_S_MAX)  # a second each
        for _ in range(looks):
            await process.look()
        for name in NAMES:
            assert process.logs[name].term - before[name] <= restarts_max < looks / RENEW_S


async def test_an_abort_ends_and_lets_go_of_the_logs_whatever_the_target_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await filled(SEGMENTED)
    refuse_openings(monkeypatch, Unsuitable(RETENTION_CHANGED))
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        for _ in range(5):
            await process.look()
        await process.places.abort()
        with capture_logs() as told:
            assert (await process.until_ended()).stage is AlterStage.ABORTED
        assert [process.logs[it].held for it in NAMES] == [False, False]
        left = [it["event"] for it in told if "may be left in kafka://a:1/tides" in it["event"]]
        assert len(left) == len(NAMES)
        assert all(RETENTION_CHANGED in it for it in left)


async def test_an_abort_tells_of_a_copy_that_it_leaves_in_a_kafka_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await filled(SEGMENTED)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        await process.steps()
        world.away = True
        await process.places.abort()
        with capture_logs() as told:
            assert (await process.until_ended(appends=False)).stage is AlterStage.ABORTED
        left = [it["event"] for it in told if "may be left in kafka://a:1/tides" in it["event"]]
        assert len(left) == len(NAMES)
        assert all("Kafka is away" in it for it in left)


async def test_what_an_earlier_switch_met_delays_no_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await filled(SEGMENTED)
    async with world.process() as process:
        await process.start()
        with monkeypatch.context() as patched:
            refuse_openings(patched, NotStored("this user may not write"))
            await process.begin(KAFKA)
            for _ in range(int(RENEW_S_MAX)):  # a second each
                await process.look()
            await process.places.abort()
            assert (await process.until_ended()).stage is AlterStage.ABORTED
            await process.begin(KAFKA)
            await process.look()  # which fails once
        begun_s = process.looks
        assert (await process.until_ended()).stage is AlterStage.DONE
        assert process.looks - begun_s < 10 * RENEW_S


async def test_nobody_forgets_the_old_log_before_each_pchannel_of_the_cluster_has_switched() -> (
    None
):
    world = World(founded=SEGMENTED)
    cluster = encode_cluster(Cluster(NAMES, FIRST, "c"))
    await world.store.write({CLUSTER_KEY: cluster})
    async with world.process() as process:
        await process.open(FIRST)
        await process.append(FIRST)
        await process.begin(KAFKA)
        for _ in range(50):
            process.looks += 1
            if await process.switch.look():
                await step(process, FIRST)
            await process.switch.advance()
        progress = await process.places.progress()
        assert progress.alter is not None
        assert progress.alter.stage is AlterStage.COPYING
        assert not progress.channels[SECOND].begun, "who looks sees for whom it waits"
        await process.open(SECOND)
        assert (await process.until_ended()).stage is AlterStage.DONE


async def test_nothing_follows_soon_while_the_target_cannot_be_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await filled(SEGMENTED)
    refuse_openings(monkeypatch, WriterFailed("no answer of Kafka"))
    monkeypatch.setattr(MemoryTopics, "why_unwritable", away)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        soon = []
        for _ in range(5):
            await process.switch.look()
            with suppress(NextTerm):
                soon.append(await process.switch.step(FIRST, process.logs[FIRST], at_rest))
        assert not any(soon), soon


async def test_a_target_that_fails_for_weeks_is_tried_on(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await filled(SEGMENTED)
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        with monkeypatch.context() as patched:
            refuse_openings(patched, NotStored("this user may not write"))
            await process.look()
            process.switch._renewals.update(dict.fromkeys(NAMES, 2000))
            process.switch._spoils.update(dict.fromkeys(NAMES, 2000))
            for _ in range(int(2 * RENEW_S_MAX)):  # a second each
                await process.look()
        process.looks += int(RENEW_S_MAX)
        await process.look()
        process.looks += int(RENEW_S_MAX)
        assert (await process.until_ended()).stage is AlterStage.DONE
        await process.check()
