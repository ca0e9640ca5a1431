"""One broker process: picks the drivers, builds the tree, opens the port, and takes it all down.

The only file that knows every part. What can go wrong at a start is one sentence, `CannotStart`.
Next: broker/edge/server.py
"""

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

import anyio
import structlog
import uvloop

from actors import ActorError, Ref, SupervisorSpec, System, SystemClock
from broker.config import Settings, misspelt, split_address
from broker.coordinator.founding import found_cluster
from broker.coordinator.messages import NextAssignment
from broker.coordinator.observer import NodeNews
from broker.coordinator.oracle import OracleTicks
from broker.coordinator.terms import StoredTerms
from broker.coordinator.tree import CoordinatorParts, coordinator_tree
from broker.core.naming import pchannel_names
from broker.data_folder import DataFolder, DataFolderError, hold
from broker.edge.admin_service import ServerFacts
from broker.edge.limits import EdgeLimits
from broker.edge.reach import Reach, Reaches
from broker.edge.server import EdgeServer
from broker.edge.stored_headers import StoredHeaders
from broker.meta.sqlite import SqliteMetaStore
from broker.model.channel import Assignment, AssignmentVersion
from broker.model.failure import Refused
from broker.model.ids import NodeId, PChannelName
from broker.node.closed_ticks import LocalClosedTicks
from broker.node.control import LocalNode
from broker.node.limits import NodeLimits
from broker.node.messages import Drain
from broker.node.parts import NodePorts, node_parts
from broker.node.tree import node_spec
from broker.ports.meta import MetaError
from broker.ports.wal import Corrupt, Retention, UnknownFormat
from broker.timesync.timing import TimesyncTiming
from broker.timesync.tree import TimesyncParts, timesync_tree
from broker.transport import ListenerLimits
from broker.wal.segmented import SegmentedWal
from broker.wal.segmented.os_files import OsFiles
from broker.wal.segmented.settings import SegmentedSettings
from broker.wal.watched import Unreadable, WatchedWal

OPEN_S_MAX = 600.0
"""Recovery of all logs; the port answers meanwhile, so clients wait rather than fail."""
EDGE_SHARE = 0.5
TREE_SHARE = 0.25
"""Of the time a stop has; the tree may need its share twice, to stop in order and to be killed."""
LISTEN_BACKLOG = 1024
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
SWITCH_INTERVAL_S = 0.0005
"""The log's threads ask for the interpreter twice a write; Python's own 5 ms is a whole group."""
ROOT = "/root"
ORACLE = f"{ROOT}/coordinator/oracle"
ASSIGNER = f"{ROOT}/coordinator/assigner"
CATALOG = f"{ROOT}/coordinator/catalog"
DIRECTORY = f"{ROOT}/node/directory"
SOFT_BARRIER = f"{ROOT}/timesync/soft_barrier"
HARD_BARRIER = f"{ROOT}/timesync/hard_barrier"

log = structlog.get_logger("tidemark")


class CannotStart(Exception):
    """The broker did not start; the message is one sentence for the person who started it."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker. `address` is what clients are told."""

    address: str
    system: System
    edge: EdgeServer


def serve(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT, then drain. Raises CannotStart; prints the ready line."""
    _configure_logs(settings.log_level)
    for name in misspelt(os.environ):
        log.warning("no such setting: this environment variable is ignored", name=name)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    signal.signal(signal.SIGTERM, _leave)  # until the loop takes over
    try:
        with bind(settings.listen) as bound, hold(settings.data_dir) as folder:
            uvloop.run(_serve(settings, folder, bound))
    except DataFolderError as error:
        raise CannotStart(str(error)) from error


def _leave(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(0)


def _stop(running: anyio.CancelScope) -> None:
    """Once told is enough: a second signal must not cut the drain, nor change the exit code."""
    for number in STOP_SIGNALS:
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    running.cancel()


async def _serve(settings: Settings, folder: DataFolder, bound: socket.socket) -> None:
    with anyio.CancelScope() as running:
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, _stop, running)
        async with run_broker(settings, folder, bound) as broker:
            sys.stdout.write(f"tidemark ready listen={broker.address} data={settings.data_dir}\n")
            sys.stdout.flush()
            await broker.system.wait_failed()


@asynccontextmanager
async def run_broker(
    settings: Settings, folder: DataFolder, bound: socket.socket
) -> AsyncIterator[Broker]:
    """A broker that serves when the block begins, and has stopped when it ends.

    `bound` is used up. Raises CannotStart with nothing left running.
    """
    async with _metadata(folder) as store:
        pchannels = pchannel_names(settings.cluster, settings.pchannels)
        await _found(store, pchannels)
        address = settings.advertise or _address_of(bound)
        tree = _Tree(settings, folder, address)
        spec = tree.spec(store, pchannels)
        tree.system = system = System(spec, stop_deadline_s=settings.drain_s * TREE_SHARE)
        async with system:
            edge = tree.edge(system)
            await edge.start_on(bound)
            try:
                await tree.wait_until_open(len(pchannels))
                yield Broker(address, system, edge)
            finally:
                tree.drain()
                with anyio.CancelScope(shield=True):
                    await edge.stop(deadline_s=settings.drain_s * EDGE_SHARE)


class _Tree:
    """Builds the parts of one process; they find each other by path once `system` is set."""

    def __init__(self, settings: Settings, folder: DataFolder, address: str) -> None:
        self._settings = settings
        self._folder = folder
        self._address = address
        self.wal = WatchedWal(_wal(settings, folder))
        self._node_id = NodeId(settings.node_id)
        self.system: System | None = None
        self.reaches = Reaches(
            directory=Reach(lambda: self._find(DIRECTORY)),
            assigner=Reach(lambda: self._find(ASSIGNER)),
            catalog=Reach(lambda: self._find(CATALOG)),
            soft_barrier=Reach(lambda: self._find(SOFT_BARRIER)),
            hard_barrier=Reach(lambda: self._find(HARD_BARRIER)),
        )

    def spec(self, store: SqliteMetaStore, pchannels: tuple[PChannelName, ...]) -> SupervisorSpec:
        """The coordinator needs the oracle first and the node last; so does a restart."""
        node = LocalNode(self._node_id, self._address, lambda: self._find(DIRECTORY))
        coordinator = coordinator_tree(CoordinatorParts(store, (node,), pchannels), ROOT)
        ports = NodePorts(
            wal=self.wal,
            terms=StoredTerms(store, self._node_id),
            ticks=OracleTicks(self._find, ORACLE),
            observer=NodeNews(self._find, ASSIGNER),
            headers=StoredHeaders(),
        )
        parts = node_parts(self._node_id, ports, _node_limits(self._settings))
        source = LocalClosedTicks(pchannels, lambda: self._find(DIRECTORY))
        timing = _timesync_timing(self._settings)
        timesync = timesync_tree(TimesyncParts(source, pchannels, timing), ROOT)
        return SupervisorSpec("root", children=(coordinator, node_spec(parts), timesync))

    def drain(self) -> None:
        """Have the node refuse new callers; it may be gone already."""
        try:
            self.reaches.directory.tell(Drain())
        except ActorError:
            pass

    def edge(self, system: System) -> EdgeServer:
        """The services over the tree."""
        facts = ServerFacts(
            version=_version(),
            node_id=self._node_id,
            cluster=self._settings.cluster,
            wal_name="rocksmq",
            data=str(self._settings.data_dir),
            pid=os.getpid(),
            started_ms=SystemClock().wall_ms(),
        )
        return EdgeServer(facts, self.reaches, system.statistics, _edge_limits(self._settings))

    async def wait_until_open(self, pchannels: int) -> None:
        """Until every pchannel has an owner that serves.

        CannotStart when that takes too long, or when no time would help because a log is damaged.
        """
        seen = None
        with anyio.move_on_after(OPEN_S_MAX):
            while True:
                table = await self._next_table(seen)
                if self.wal.unreadable is not None:
                    cause = _of_damage(self._folder.log, self.wal.unreadable)
                    raise CannotStart(cause) from self.wal.unreadable
                if table is None:
                    continue
                seen = table.version
                if sum(len(node.channels) for node in table.nodes) == pchannels:
                    return
        cause = f"not every pchannel could be opened within {OPEN_S_MAX:.0f} s; see the log"
        raise CannotStart(cause)

    async def _next_table(self, seen: AssignmentVersion | None) -> Assignment | None:
        """None while the coordinator waits for its store; raises when the tree has given up."""
        try:
            return await self.reaches.assigner.ask(NextAssignment(seen))
        except ActorError as error:
            self._find(ROOT)
            log.warning("still starting", waits_for=str(error))
            return None

    def _find(self, path: str) -> Ref[Any]:
        assert self.system is not None, path
        return self.system.find(path)


def _configure_logs(level: str) -> None:
    """Everything to stderr: stdout is for the ready line."""
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(
        level=number, stream=sys.stderr, format="%(asctime)s [%(levelname)s] %(name)s: %(message)s"
    )
    logging.getLogger("aiosqlite").setLevel(max(number, logging.WARNING))
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            # Plain tracebacks: the pretty ones print locals, and those hold what people send.
            structlog.dev.ConsoleRenderer(
                colors=False, exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _version() -> str:
    try:
        return version("tidemark")
    except PackageNotFoundError:  # run from a checkout
        return "0+checkout"


@asynccontextmanager
async def _metadata(folder: DataFolder) -> AsyncIterator[SqliteMetaStore]:
    try:
        store = await SqliteMetaStore.open(folder.metadata)
    except MetaError as error:
        raise CannotStart(str(error)) from error
    async with store:
        yield store


async def _found(store: SqliteMetaStore, pchannels: tuple[PChannelName, ...]) -> None:
    try:
        await found_cluster(store, pchannels)
    except Refused as refused:
        raise CannotStart(refused.refusal.cause) from refused
    except MetaError as error:
        raise CannotStart(str(error)) from error


def _of_damage(log_folder: Path, unreadable: Unreadable) -> str:
    if isinstance(unreadable, UnknownFormat):
        return f"cannot open {log_folder}/{unreadable}; start the program that wrote it"
    return (
        f"cannot open {log_folder}/{unreadable}; put the file back from a copy, or set"
        " TIDEMARK_SKIP_DAMAGE=true to lose what is damaged and read the rest"
    )


def bind(listen: str) -> socket.socket:
    """A socket bound to HOST:PORT, so that a taken port is told before anything is opened."""
    host, port = split_address(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(LISTEN_BACKLOG)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise CannotStart(
                f"{listen} is in use by another program; stop it, or pass another --listen"
            ) from error
        raise CannotStart(f"cannot listen on {listen}: {error.strerror or error}") from error
    return bound


def _address_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _wal(settings: Settings, folder: DataFolder) -> SegmentedWal:
    sizes = SegmentedSettings(
        segment_bytes=settings.segment_bytes, skip_damage=settings.skip_damage
    )
    return SegmentedWal(OsFiles(folder.log), sizes, on_damage=_tell_damage)


def _tell_damage(damage: Corrupt) -> None:
    log.error("damaged record skipped", file=damage.file, offset=damage.offset, why=damage.reason)


def _node_limits(settings: Settings) -> NodeLimits:
    return NodeLimits(
        message_bytes_max=settings.message_bytes_max,
        tick_interval_s=settings.tick_interval_ms / 1000,
        tail_bytes_max=settings.tail_bytes_max,
        tail_total_bytes_max=settings.tail_total_bytes_max,
        tail_age_s=settings.tail_age_s,
        retention=Retention(settings.retention_bytes, settings.retention_ms),
    )


def _timesync_timing(settings: Settings) -> TimesyncTiming:
    return TimesyncTiming(
        poll_s=settings.tick_interval_ms / 1000,
        interval_ms=settings.soft_tick_interval_ms,
        pchannel_lease_s=settings.silent_pchannel_s,
    )


def _edge_limits(settings: Settings) -> EdgeLimits:
    return EdgeLimits(
        message_bytes_max=settings.message_bytes_max,
        frame_bytes_max=settings.frame_bytes_max,
        produce_inflight_bytes_max=settings.produce_inflight_bytes_max,
        consume_credit_bytes=settings.consume_credit_bytes,
        idle_peer_s=settings.idle_peer_s,
        listener=ListenerLimits(
            connections_max=settings.connections_max, idle_peer_s=settings.idle_peer_s
        ),
    )
