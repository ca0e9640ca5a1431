"""kill -9 amid commits of batches: each batch is there wholly and once, whoever was killed when.

`--rounds N` says how often somebody is killed; a few times in CI, a hundred to show the result.
"""

import logging
import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from broker.client import (
    Client,
    OutcomeUnknown,
    StagedPart,
    TidemarkError,
    TransactionExpired,
    connect,
)
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import InvalidTransactionState
from tests.broker_process import BrokerProcess, free_port
from tests.roles_processes import RoleProcess, until

V = tuple(NewVChannel(f"by-dev-rootcoord-dml_{number}_9v{number}") for number in range(3))
APPS = ("one", "two")
PARTS = 2
ROWS = 3
ROUND_S_MAX = 90.0
BATCHES = (2, 8)
KILL_WITHIN_S = 0.2
IDLE_MS = 8000
"""What nobody commits is over by then."""


@dataclass(slots=True)
class Told:
    """How many batches of each app were answered as committed."""

    committed: Counter[str] = field(default_factory=Counter)
    again: int = 0
    lost: int = 0
    grown: anyio.Event = field(default_factory=anyio.Event)

    async def reach(self, commits: int) -> None:
        while self.committed.total() < commits:
            self.grown = anyio.Event()
            await self.grown.wait()


async def test_batches_survive_kill_nine_of_a_broker(tmp_path: Path, rounds: int) -> None:
    address = f"127.0.0.1:{free_port()}"
    idle = str(IDLE_MS)
    running = [BrokerProcess(tmp_path / "data", address, pchannels="3", stage_idle_ms=idle)]

    async def strike(_: random.Random) -> None:
        running[0].kill()
        running[0] = BrokerProcess(tmp_path / "data", address, pchannels="3", stage_idle_ms=idle)

    try:
        await commit_amid(address, strike, rounds)
    finally:
        running[0].kill()


async def test_batches_survive_kill_nine_of_nodes_and_coordinator(
    tmp_path: Path, rounds: int
) -> None:
    data, address = str(tmp_path / "data"), f"127.0.0.1:{free_port()}"

    def start(role: int) -> RoleProcess:
        """0: the coordinator."""
        if not role:
            options = ("--data-dir", data, "--listen", address, "--pchannels", "3")
            return RoleProcess("coordinator", *options)
        given = ("--node-id", str(role), "--coordinator", address, "--data-dir", data)
        return RoleProcess("node", *given, "--listen", "127.0.0.1:0", stage_idle_ms=str(IDLE_MS))

    with ExitStack() as stack:
        running: list[RoleProcess] = []
        for role in range(3):
            running.append(stack.enter_context(start(role)))
            await running[role].ready()

        async def strike(chosen: random.Random) -> None:
            role = chosen.randrange(3)
            os.kill(running[role].pid, signal.SIGKILL)
            running[role] = stack.enter_context(start(role))
            await running[role].ready()

        await commit_amid(address, strike, rounds)


async def commit_amid(
    address: str, strike: Callable[[random.Random], Awaitable[None]], rounds: int
) -> None:
    """Commit batches of all apps while strikes fall; then look at all that is there."""
    chosen, told = random.Random(rounds), Told()
    async with connect(address) as log:
        with anyio.CancelScope() as load:
            async with anyio.create_task_group() as group:
                for app in APPS:
                    group.start_soon(commit_for_ever, log, app, told)
                for _ in range(rounds):
                    with anyio.fail_after(ROUND_S_MAX):
                        await told.reach(told.committed.total() + chosen.randint(*BATCHES))
                    await anyio.sleep(chosen.uniform(0, KILL_WITHIN_S))
                    await strike(chosen)
                with anyio.fail_after(ROUND_S_MAX):
                    await told.reach(told.committed.total() + BATCHES[1])
                load.cancel()
        await until(lambda: is_quiet(log))
        check([await rows(log, vchannel) for vchannel in V], told)
    logging.getLogger("tests.chaos").warning(
        "%s kills, %s batches committed, %s answered as done already, %s staged again",
        *(rounds, told.committed.total(), told.again, told.lost),
    )


async def commit_for_ever(log: Client, app: str, told: Told) -> None:
    attempt = 0
    while True:
        batch = told.committed[app]
        try:
            parts = [await staged(log, app, batch, part, attempt) for part in range(PARTS)]
            already = await committed(log, app, batch, parts)
        except (TransactionExpired, InvalidTransactionState, OutcomeUnknown):
            told.lost += 1
        except TidemarkError as error:
            if not error.retriable:
                raise
            told.lost += 1
        else:
            told.again += already
            told.committed[app] += 1
            told.grown.set()
        attempt += 1


async def staged(log: Client, app: str, batch: int, part: int, attempt: int) -> StagedPart:
    async with log.stage(app, batch, part, attempt) as stage:
        for vchannel in V:
            name = f"{app}/{batch}/{part}/{attempt}"
            await stage.append_batch(vchannel, [f"{name}/{it}".encode() for it in range(ROWS)])
        return await stage.seal()


async def committed(log: Client, app: str, batch: int, parts: Sequence[StagedPart]) -> bool:
    """Asked again and again until it is known; whether it had taken effect before."""
    while True:
        try:
            done = await log.commit_batch(app, batch, parts, deadline_s=2.0)
        except OutcomeUnknown:
            continue
        assert done.batch == batch
        return done.already


async def is_quiet(log: Client) -> bool:
    """Nothing is staged any more, and nothing is being committed."""
    try:
        open_txns = sum(it.open_txns for it in (await log.offsets.describe(V)).values())
        under_way = [it for it in await log.commits.list() if it.under_way is not None]
    except TidemarkError:
        return False
    return not (open_txns or under_way)


async def rows(log: Client, vchannel: str) -> list[tuple[str, int, int, int, int]]:
    """app, batch, part, attempt and row of what a reader sees, in order."""
    found = [it.payload.decode() async for it in log.read(vchannel, until="now").messages()]
    split = [it.split("/") for it in found]
    return [(app, int(a), int(b), int(c), int(d)) for app, a, b, c, d in split]


def check(found: Sequence[Sequence[tuple[str, int, int, int, int]]], told: Told) -> None:
    """Each batch up to the last is on every vchannel: each part of it, of one attempt, once.

    One batch more than was answered may be there: its answer was not waited for.
    """
    attempts: defaultdict[tuple[str, int, int], set[int]] = defaultdict(set)
    newest: dict[str, set[int]] = {app: set() for app in APPS}
    for seen in found:
        assert len(set(seen)) == len(seen), "twice"
        batches = {(app, batch) for app, batch, _, _, _ in seen}
        for app in APPS:
            numbers = sorted(batch for name, batch in batches if name == app)
            assert numbers == list(range(len(numbers)))
            assert len(numbers) in (told.committed[app], told.committed[app] + 1)
            newest[app].add(len(numbers))
        for app, batch, part, attempt, _ in seen:
            attempts[app, batch, part].add(attempt)
        assert len(seen) == len(batches) * PARTS * ROWS
    assert all(len(it) == 1 for it in attempts.values()), "two attempts at one part"
    assert all(len(it) == 1 for it in newest.values()), "part of a batch"
