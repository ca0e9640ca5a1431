"""One storm from begin to end: cluster, load, faults, calm, and the judgement."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from broker.client import Client, Received, TidemarkError, connect
from broker.client.cluster.targets import NewVChannel
from broker.client.errors import Unrecoverable
from tests.chaos.storm.checkers import Violation
from tests.chaos.storm.cluster import Cluster
from tests.chaos.storm.counted import create_counted, flush_all, read_segments, unflushed
from tests.chaos.storm.ddl_history import DdlHistory
from tests.chaos.storm.definitions import Definitions
from tests.chaos.storm.faults import Storm
from tests.chaos.storm.groups.group_history import ORDERED
from tests.chaos.storm.groups.group_members import RESTARTED, STEADY, GroupMembers
from tests.chaos.storm.history import History, Owned
from tests.chaos.storm.judge import judge, shortest, told
from tests.chaos.storm.patience import MOST_S, asked_again, patient
from tests.chaos.storm.plan import ON_ONE_MACHINE, Deck, make_plan
from tests.chaos.storm.purging.purge_load import PurgeLoad
from tests.chaos.storm.purging.retention_load import RetentionLoad
from tests.chaos.storm.read_definitions import read_definitions
from tests.chaos.storm.readers import Readers, seen
from tests.chaos.storm.recorder import Recorder
from tests.chaos.storm.rows import creation_of_rows, schema_of_rows
from tests.chaos.storm.sabotages import planted_in_clients
from tests.chaos.storm.workload import PLACED, Workload

START_S = READ_S = MOST_S
WORK_S = 120.0
OWNERS_EVERY_S = 0.5
SHOWN_MAX = 5
CONTRADICTS = "a log cannot be read to its end"


class NotJudged(Exception):
    """The cluster did not come to where its history can be judged."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a run depends on, but for the machine.

    `txns`: it goes on behind the last fault until so many were acknowledged.
    """

    seed: int
    seconds: float
    faults: tuple[str, ...] = ()
    nodes: int = 3
    pchannels: int = 4
    vchannels_each: int = 2
    sabotage: str = ""
    txns: int = 1
    deck: Deck = ON_ONE_MACHINE

    @property
    def purged(self) -> tuple[str, ...]:
        """Vchannels that are purged, and have no other load."""
        held = [NewVChannel(f"by-dev-rootcoord-dml_{it}_90v{it}") for it in self._some_pchannels]
        return *held[:2], *self.purged_unread

    @property
    def purged_unread(self) -> tuple[str, ...]:
        """Those of them that no group reads."""
        return tuple(
            NewVChannel(f"by-dev-rootcoord-dml_{it}_91v{it}") for it in self._some_pchannels
        )

    @property
    def _some_pchannels(self) -> range:
        return range(min(4, self.pchannels))

    @property
    def vchannels(self) -> tuple[str, ...]:
        return tuple(
            NewVChannel(f"by-dev-rootcoord-dml_{pchannel}_{7 + number}v{pchannel}")
            for pchannel in range(self.pchannels)
            for number in range(self.vchannels_each)
        )


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it. `starts`: how often each process was started."""

    options: Options
    history: History
    struck: Counter[str]
    missed: Counter[str]
    starts: dict[str, int]
    faults: Sequence[tuple[float, str]]
    violations: Sequence[Violation]

    def noticed(self) -> list[str]:
        """Which checkers have found something, and how soon after the begin that was there."""
        history = self.history
        ended_s = {payload: it.ended_s for it in history.operations for payload in it.payloads}
        began_s = min((it.began_s for it in history.calls), default=0.0)
        over_s = max(ended_s.values(), default=0.0)
        first = dict[str, float]()
        for it in self.violations:
            at_s = max((ended_s.get(each, over_s) for each in it.payloads), default=over_s)
            first[it.checker] = min(first.get(it.checker, at_s), at_s)
        return [
            f"noticed after {at_s - began_s:.1f} s by "
            + (f"checker {checker}" if checker else "the storm itself")
            for checker, at_s in sorted(first.items(), key=lambda it: it[1])
        ]

    def failures(self) -> list[str]:
        """Each kind of violation, with the seed and the shortest history that shows it."""
        lines = list[str]()
        for kind in dict.fromkeys(it.kind for it in self.violations):
            of_kind = [it for it in self.violations if it.kind == kind]
            lines.append(f"seed {self.options.seed}: {len(of_kind)} x {kind}")
            lines += [f"  {it.vchannel} {it.text}" for it in of_kind[:SHOWN_MAX]]
            lines += [f"    {it}" for it in told(shortest(self.history, of_kind[0]))]
        return lines


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a storm takes place: how the cluster is made, and what faults it has."""

    cluster: Callable[[Options, Path], Cluster]
    storm: Callable[[Cluster, Path, Client, Recorder], Storm]


def _on_one_machine(options: Options, folder: Path) -> Cluster:
    return Cluster(folder, options.nodes, options.pchannels, options.sabotage)


ONE_MACHINE = Stage(_on_one_machine, Storm)


async def run_storm(options: Options, folder: Path, stage: Stage = ONE_MACHINE) -> Report:
    """Raises NotJudged or TimeoutError; nothing of it is left running."""
    cluster = stage.cluster(options, folder)
    recorder = Recorder()
    try:
        async with anyio.create_task_group() as tasks:
            await cluster.start(tasks)
            await wait_until_served(cluster, options.pchannels)
            async with AsyncExitStack() as clients:
                clients.enter_context(planted_in_clients(options.sabotage))
                a, b = [it.address for it in cluster.client_links]
                logs = [await clients.enter_async_context(connect(it)) for it in (a, b, a, b)]
                storm = stage.storm(cluster, folder, logs[3], recorder)
                made = await logs[1].collections.create("rows", shards=2, schema=schema_of_rows())
                for vchannel in made.vchannels:
                    # From here on rows are placed in segments, and recovered with them.
                    await logs[1].raw_append(vchannel, creation_of_rows())
                counted = await create_counted(logs[1], shards=2)
                vchannels = *options.vchannels, *made.vchannels, *counted.vchannels
                load = Workload(
                    logs[1], logs[0], recorder, vchannels, made.vchannels, counted, options.seed
                )
                readers = Readers(logs[2], recorder, vchannels, made.vchannels, options.seed)
                run = _Run(options, recorder, storm, load, readers)
                await run.through(tasks)
            tasks.cancel_scope.cancel()
    finally:
        cluster.end()
    starts = {it.name: it.starts for it in cluster.members}
    violations = [*run.unended, *(judge(recorder.history) if run.readable else ())]
    return Report(
        options, recorder.history, storm.struck, storm.missed, starts, storm.told, violations
    )


class _Run:
    """The part with clients."""

    def __init__(
        self,
        options: Options,
        recorder: Recorder,
        storm: Storm,
        load: Workload,
        readers: Readers,
    ) -> None:
        self._options = options
        self._recorder = recorder
        self._storm = storm
        self._log = load.log
        self._load = load
        self._readers = readers
        self._definitions = Definitions(load.log, recorder, options.seed)
        # Of messages, and of rows that are counted.
        plain = load.plain
        served = {
            STEADY: (*plain[::3], *load.of_rows[:1]),
            RESTARTED: plain[1:2],
            ORDERED: plain[2:3],
        }
        self._members = GroupMembers(load.log, recorder, served, options.seed)
        self._purges = PurgeLoad(
            load.log, recorder, options.purged, options.purged_unread, options.seed
        )
        self._retained = RetentionLoad(load.log, recorder, (), (), options.seed)
        self.unended: list[Violation] = []
        self.readable = True
        """Whether no log contradicts itself: else the history says nothing more than that."""

    async def through(self, tasks: TaskGroup) -> None:
        options = self._options
        async with anyio.create_task_group() as background:
            background.start_soon(self._recorder.pulse)
            background.start_soon(self._watch_owners)
            await self._readers.start(background)
            await self._purges.found()
            await self._retained.found()
            async with anyio.create_task_group() as work:
                self._load.start(work)
                self._definitions.start(work)
                self._members.start(work)
                self._purges.start(work)
                self._retained.start(work)
                plan = make_plan(options.seed, options.seconds, options.faults, options.deck)
                await self._storm.rage(plan)
                await self._enough_acknowledged()
                loads = (self._load, self._definitions, self._members, self._purges)
                for each in (*loads, self._retained):
                    each.enough = True
            await self._readers.stop_opening(MOST_S)
            await self._end_broadcasts()
            await self._mark()
            await self._read_all()
            if self.readable:
                await self._look_at_the_rest()
            background.cancel_scope.cancel()

    async def _look_at_the_rest(self) -> None:
        await self._read_purged()
        await self._read_definitions()
        await self._count_segments()
        markers = {name: found[-1].tick for name, found in self._recorder.history.final.items()}
        self.unended += await self._members.drain(markers)
        await self._readers.reach(markers)

    async def _enough_acknowledged(self) -> None:
        """A machine that is too slow for that amid the faults gets a while behind them."""
        wanted = dict.fromkeys(PLACED, 1) | {"txn": self._options.txns}
        with anyio.move_on_after(WORK_S):
            while not self._recorder.acknowledged >= Counter(wanted):
                await self._recorder.next_acknowledged()

    async def _end_broadcasts(self) -> None:
        """Those nobody waits for any more end as well."""
        left: object = "no answer"
        with patient() as patience:
            while left:
                try:
                    left = await self._log.broadcast.list()
                    patience.saw(str(left))
                except TidemarkError as error:
                    left = error
                await anyio.sleep(0.1)
        if left:
            self.unended.append(Violation("broadcast under way", f"{patience.waited}: {left}"))

    async def _mark(self) -> None:
        """One message more on each vchannel, which has to succeed."""

        async def mark(vchannel: str) -> None:
            name, load = f"marker {vchannel}", self._load
            if vchannel in load.of_rows:
                done = await load.rows(vchannel, [name], MOST_S)
            else:
                done = await load.append(vchannel, name, MOST_S)
            if not done:
                text = f"no append to it within {MOST_S} s after all was healed"
                self.unended.append(Violation("not healed", text, vchannel))

        async with anyio.create_task_group() as tasks:
            for vchannel in self._load.vchannels:
                tasks.start_soon(mark, vchannel)

    async def _read_all(self) -> None:
        async with connect(self._storm.cluster.client_links[1].address) as log:
            for vchannel in self._load.vchannels:
                try:
                    read = await asked_again(partial(_all_of, log, vchannel), READ_S)
                    found = [self._recorder.one(it) for it in seen(read)]
                except Unrecoverable as error:
                    self.unended.append(Violation(CONTRADICTS, f"{vchannel}: {error}"))
                    self.readable = False
                    return
                except (TidemarkError, TimeoutError) as error:
                    raise NotJudged(f"{vchannel} cannot be read to its end: {error!r}") from error
                self._recorder.history.final[vchannel] = found

    async def _read_purged(self) -> None:
        try:
            for vchannel in self._purges.vchannels:
                await self._purges.look(vchannel, READ_S)
            self.unended += await self._retained.empty()
        except (TidemarkError, TimeoutError) as error:
            raise NotJudged(f"what is left of the purged cannot be read: {error!r}") from error

    async def _read_definitions(self) -> None:
        async with connect(self._storm.cluster.client_links[1].address) as log:
            try:
                ddl = self._recorder.history.ddl
                await asked_again(partial(read_definitions, log, ddl), READ_S)
            except Unrecoverable as error:
                self.unended.append(Violation(CONTRADICTS, str(error)))
                self._recorder.history.ddl = DdlHistory()  # what is behind that says nothing
            except (TidemarkError, TimeoutError) as error:
                raise NotJudged(f"the definitions cannot be read: {error!r}") from error

    async def _count_segments(self) -> None:
        """Flush them all, so that the master's counts are final; then read what the logs say."""
        counted, history = self._load.counted, self._recorder.history
        with patient() as patience:
            await flush_all(self._log, counted, history, patience)
        if patience.ran_out:
            text = f"not all of {counted.id} are flushed {patience.waited}"
            text = f"{text}: {await unflushed(self._log, counted)}"
            self.unended.append(Violation("not flushed", text))
        async with connect(self._storm.cluster.client_links[1].address) as log:
            for vchannel in counted.vchannels:
                try:
                    with anyio.fail_after(READ_S):
                        await read_segments(log, vchannel, history)
                except (TidemarkError, TimeoutError) as error:
                    raise NotJudged(f"the segments of {vchannel}: {error!r}") from error

    async def _watch_owners(self) -> None:
        """Whenever a channel has another owner or term than when it was last looked at."""
        last = dict[str, Owned]()
        while True:
            try:
                channels = await self._log.admin.channels()
            except TidemarkError:
                channels = []
            for it in channels:
                owned = Owned(it.name, it.term, it.node_id)
                if it.state == "assigned" and owned != last.get(it.name):
                    last[it.name] = owned
                    self._recorder.history.owned.append(owned)
            await anyio.sleep(OWNERS_EVERY_S)


async def _all_of(log: Client, vchannel: str) -> list[Received]:
    return [it async for it in log.read(vchannel, until="now").messages()]


async def wait_until_served(cluster: Cluster, pchannels: int) -> None:
    """Until every pchannel has an owner."""
    with anyio.fail_after(START_S):
        while True:
            try:
                async with connect(cluster.client_links[1].address) as log:
                    channels = await log.admin.channels()
                if sum(it.state == "assigned" for it in channels) == pchannels:
                    return
            except TidemarkError:
                pass
            await anyio.sleep(0.1)


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value that so many are not above; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
