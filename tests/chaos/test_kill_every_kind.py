"""Each kind of actor is killed under a whole load: its term grows, only its subtree restarts.

Supervisors among them: who was below one begins anew with it, and appends go on.
No caller gets an error that the client does not get over by itself. A new kind of actor fails the
last test until it stands in the list, and then is killed like the others. `--rounds N`: a fifth of
it is how often each is killed, once at least.
"""

import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from actors import ActorStatistics
from broker.app import Broker
from broker.client import connect
from broker.core.cluster.actor_kinds import ONE_OF_MANY, shape_of
from broker.core.naming import pchannel_names
from tests.chaos.whole_load import Load, until
from tests.local_broker import local_broker

NAMES = pchannel_names("by-dev", 2)
WORKERS = 4
LOG = "/root/node/channels/*/log"
WRITER = f"{LOG}/appender"
"""Whoever dies with a message of a transaction in hand leaves its sender to begin again."""
KINDS = (
    "/root/coordinator/assigner",
    "/root/coordinator/balancer",
    "/root/coordinator/broadcaster/locks",
    "/root/coordinator/broadcaster/tasks/*",
    "/root/coordinator/catalog",
    "/root/coordinator/commits/committer",
    "/root/coordinator/consumption",
    "/root/coordinator/cut_lock",
    "/root/coordinator/node_probe",
    "/root/coordinator/oracle",
    "/root/coordinator/reconcilers/*",
    "/root/coordinator/sys_config",
    "/root/coordinator/window",
    "/root/master/adopter",
    "/root/master/ids",
    "/root/master/members",
    "/root/master/segment_reader",
    "/root/master/segments",
    "/root/master/table",
    "/root/master/time_ticks/proxies",
    "/root/master/time_ticks/proxies_sender",
    "/root/master/time_ticks/write_nodes",
    "/root/master/time_ticks/write_nodes_sender",
    "/root/node/channels/*/controller",
    WRITER,
    f"{LOG}/group_keeper",
    f"{LOG}/groups/*",
    f"{LOG}/recovery",
    f"{LOG}/txn_monitor",
    f"{LOG}/scanners/*",
    f"{LOG}/transactions/*",
    "/root/node/directory",
    "/root/node/disk_watch",
    "/root/node/lag_watch",
    "/root/node/memory_watch",
    "/root/node/time_tick",
    "/root/node/truncation",
    "/root/node/wal_switcher",
    "/root/node/purging",
    "/root/node/reclamation",
    "/root/node/compactor",
    "/root/node/retention_keeper",
    "/root/node/size_reader",
    "/root/node/storage_watch",
    "/root/timesync/cursor_watch",
    "/root/timesync/cursors",
    "/root/timesync/hard_barrier",
    "/root/timesync/soft_barrier",
    "/root/timesync/tick_producer",
)
"""Shapes of the paths of all actors that a broker under a whole load has."""
SUPERVISORS = (
    "/root/coordinator",
    "/root/coordinator/broadcaster",
    "/root/coordinator/broadcaster/tasks",
    "/root/coordinator/commits",
    "/root/coordinator/commits/tasks",
    "/root/coordinator/reconcilers",
    "/root/master",
    "/root/master/time_ticks",
    *(HOLD_WRITERS := ("/root/node", "/root/node/channels", "/root/node/channels/*", LOG)),
    f"{LOG}/groups",
    f"{LOG}/scanners",
    f"{LOG}/transactions",
    "/root/timesync",
)
"""Those of who is above them."""
ROOT = "/root"
"""It is never killed."""

PASSING = {"/root/coordinator/commits/tasks/*"}
"""These live for milliseconds; tests/broker/coordinator/commit/test_committer.py kills them."""

told = logging.getLogger("tests.chaos")


@pytest.mark.parametrize("kind", [*KINDS, *SUPERVISORS, None])
async def test_whichever_actor_is_killed_only_its_subtree_restarts_and_callers_go_on(
    kind: str | None, rounds: int, tmp_path: Path
) -> None:
    """`None`: nobody is killed, and the kinds are compared with the list."""
    chosen = random.Random(kind)
    async with (
        local_broker(tmp_path / "data", pchannels=len(NAMES), node_acks=False) as broker,
        connect(broker.address) as log,
        anyio.create_task_group() as background,
    ):
        load = Load(log, NAMES, WORKERS)
        async with anyio.create_task_group() as tasks:
            await load.start(tasks, background)
            if kind is None:
                seen = set[str]()
                with suppress(TimeoutError):
                    await until(lambda: see_kinds(broker, seen) >= {*KINDS, *SUPERVISORS, ROOT})
                assert seen - PASSING == {*KINDS, *SUPERVISORS, ROOT}
            else:
                for _ in range(max(1, rounds // 5)):
                    await kill_one(broker, load, kind, chosen)
            load.finish()
        await load.check()
        lost = sum(channel.txns_lost for channel in load.channels)
        assert lost == 0 or kind == WRITER or kind in HOLD_WRITERS
        assert (await log.admin.health()).state == "healthy"
        background.cancel_scope.cancel()


async def kill_one(broker: Broker, load: Load, kind: str, chosen: random.Random) -> None:
    """Kill one of the kind, and see everybody go on."""
    await until(lambda: bool(of_kind(broker, kind)))
    before = broker.system.statistics()
    victim = chosen.choice(of_kind(broker, kind))
    usual = load.calls.slowest()
    broker.system.kill(victim.path)
    await until(lambda: is_back(broker, victim))
    await load.calls.all_go_on()
    told.info("%s: slowest ms before %s, since %s", kind, usual, load.calls.slowest())
    spared = {it.path: it.term for it in before} | {victim.path: victim.term + 1}
    for path in brought_down(before, victim.path) - {victim.path}:
        spared.pop(path, None)
    now = {it.path: it.term for it in broker.system.statistics()}
    passing = {path for path in spared if ONE_OF_MANY in shape_of(path)} - set(now)
    assert {path: now.get(path) for path in spared if path not in passing} == {
        path: term for path, term in spared.items() if path not in passing
    }


def see_kinds(broker: Broker, seen: set[str]) -> set[str]:
    """All that were ever seen: what lives shortly is not there at every look."""
    seen |= {shape_of(it.path) for it in broker.system.statistics()}
    return seen


def of_kind(broker: Broker, kind: str) -> list[ActorStatistics]:
    """Those that go on until the load ends: who may end meanwhile is not seen to come back."""
    everybody = broker.system.statistics()
    running = [it for it in everybody if shape_of(it.path) == kind and it.state == "running"]
    return [it for it in running if not is_staged(it)]


def is_staged(actor: ActorStatistics) -> bool:
    """A transaction that holds staged rows, which ends with their batch."""
    return "stage" in actor.extra


def is_back(broker: Broker, victim: ActorStatistics) -> bool:
    return any(
        it.path == victim.path and it.term > victim.term and it.state == "running"
        for it in broker.system.statistics()
    )


def brought_down(everybody: Sequence[ActorStatistics], victim: str) -> set[str]:
    """Who goes down with it, by its supervisor's strategy; `everybody` is in start order."""
    supervisor = victim.rpartition("/")[0]
    strategy = next(it.extra["strategy"] for it in everybody if it.path == supervisor)
    siblings = [it.path for it in everybody if it.path.rpartition("/")[0] == supervisor]
    down = {
        "one_for_one": [victim],
        "rest_for_one": siblings[siblings.index(victim) :],
        "one_for_all": siblings,
    }[str(strategy)]
    return {it.path for it in everybody for top in down if f"{it.path}/".startswith(f"{top}/")}
