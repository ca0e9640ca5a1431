"""The administration service of one server: its health, channels and actors."""

from collections.abc import Mapping
from dataclasses import dataclass

from broker.client.cluster.service import ServiceCalls
from broker.client.errors import ChannelNotExist, NotLocal, ProtocolBroken
from broker.client.net.connection import Connection
from broker.model.ids import TimeTick
from broker.model.traffic import VChannelTraffic
from schemas.generated.tidemark import v1


@dataclass(frozen=True, slots=True)
class ChannelTrouble:
    """A pchannel that refuses appends, or that no node serves, with the cause."""

    name: str
    state: str
    cause: str


@dataclass(frozen=True, slots=True)
class Damage:
    """A place in a stored log that could not be read, met `times` times since the server started.

    `file` is relative to the folder of the logs. `skipped`: readers continue behind it.
    """

    pchannel: str
    file: str
    offset: int
    reason: str
    skipped: bool
    times: int


@dataclass(frozen=True, slots=True)
class LogHolder:
    """Who keeps retention from removing `bytes` of a pchannel; None: without a limit."""

    pchannel: str
    kind: str
    name: str
    bytes: int
    bytes_max: int | None
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class PassedHolder:
    """Who lost messages of a pchannel up to `removed_tick`, and has not moved on since.

    `cause`: "bytes" or "time", the limit that it exceeded, which is `limit` (bytes, or Unix
    milliseconds); or "unasked", while no coordinator answered. `bytes`: what it held back by then.
    """

    pchannel: str
    kind: str
    name: str
    cause: str
    bytes: int
    limit: int
    removed_tick: int
    passed_ms: int


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a server. `state`: starting, healthy, degraded, stopping or standby.

    `data`: its data folder, on its machine. `cluster_id`: the same on all servers of one data
    folder, and on no other; "" from a server of an older release. `holders`, `passed`, `warnings`
    and `clashes` are worth a look, but do not make a server degraded. `clashes`: the first hundred
    changes by clients of Milvus without effect, because their names or ids were taken. `leader`,
    `standbys`: the addresses of the coordinators; "" and none from a node.
    """

    state: str
    version: str
    node_id: int
    cluster: str
    wal_name: str
    data: str
    pid: int
    started_ms: int
    channels_open: int
    channels_total: int
    troubles: tuple[ChannelTrouble, ...]
    damages: tuple[Damage, ...]
    damages_unlisted: int
    consumption_paused: bool
    cluster_id: str = ""
    holders: tuple[LogHolder, ...] = ()
    passed: tuple[PassedHolder, ...] = ()
    warnings: tuple[str, ...] = ()
    clashes: tuple[str, ...] = ()
    leader: str = ""
    standbys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChannelInfo:
    """One pchannel: the node that serves it, at which term, and what it holds.

    `closed_tick`: no message with this tick or a smaller one will be added. `last_confirmed_id`:
    a reader that starts here sees every later message whole; open transactions hold it back.
    `checkpoint_id`: a restart reads the log again from here, `checkpoint_lag` messages;
    `checkpoint_tick`: the tick of the saved state. Both are 0 while nothing was saved yet.
    Segments are those of collections: growing ones take rows, sealed ones wait for their flush.
    """

    name: str
    term: int
    state: str
    node_id: int
    address: str
    first_id: int
    next_id: int
    closed_tick: int
    size_bytes: int
    vchannels: tuple[str, ...]
    is_control_host: bool
    last_confirmed_id: int
    open_txns: int
    open_txn_bytes: int
    prepared_txns: int
    checkpoint_id: int
    checkpoint_tick: int
    checkpoint_lag: int
    growing_segments: int
    growing_bytes: int
    sealed_segments: int
    read_only: bool
    holders: tuple[LogHolder, ...] = ()
    passed: tuple[PassedHolder, ...] = ()


@dataclass(frozen=True, slots=True)
class ActorInfo:
    """One actor or supervisor of the server; `extra` has figures of its own kind."""

    path: str
    term: int
    kind: str
    state: str
    mailbox_depth: int
    mailbox_bound: int
    restarts: int
    handled: int
    extra: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ServerTraffic:
    """What one process has counted of each vchannel.

    Counts of two answers can be compared while `process` and a vchannel's `serial` are the same.
    `at_ms`: a clock of that process that never goes back.
    """

    process: str
    at_ms: int
    vchannels: tuple[VChannelTraffic, ...]


class ServerAdmin:
    """Asks one server. Every call has a deadline and raises what `broker.client.errors` has."""

    def __init__(self, connection: Connection, *, deadline_s: float) -> None:
        self._calls = ServiceCalls(connection, "tidemark.v1.Admin", deadline_s=deadline_s)
        self._log = ServiceCalls(connection, "tidemark.v1.Log", deadline_s=deadline_s)

    async def health(self) -> Health:
        """The health of this server."""
        it = await self._calls.ask("Health", v1.HealthRequest(), v1.HealthResponse)
        return Health(
            state=it.state,
            version=it.version,
            node_id=it.node_id,
            cluster=it.cluster,
            wal_name=it.wal_name,
            data=it.data,
            pid=it.pid,
            started_ms=it.started_ms,
            channels_open=it.channels_open,
            channels_total=it.channels_total,
            troubles=tuple(ChannelTrouble(t.name, t.state, t.cause) for t in it.troubles),
            damages=tuple(
                Damage(d.pchannel, d.file, d.offset, d.reason, d.skipped, d.times)
                for d in it.damages
            ),
            damages_unlisted=it.damages_unlisted,
            consumption_paused=it.consumption_paused,
            cluster_id=it.cluster_id,
            holders=tuple(map(_holder, it.holders)),
            passed=tuple(map(_passed, it.passed)),
            warnings=tuple(it.warnings),
            clashes=tuple(it.clashes),
            leader=it.leader,
            standbys=tuple(it.standbys),
        )

    async def channels(self) -> list[ChannelInfo]:
        """Every pchannel of the cluster, sorted by name."""
        answer = await self._calls.ask("Channels", v1.ChannelsRequest(), v1.ChannelsResponse)
        return [
            ChannelInfo(
                name=it.name,
                term=it.term,
                state=it.state,
                node_id=it.node_id,
                address=it.address,
                first_id=it.first_id,
                next_id=it.next_id,
                closed_tick=it.closed_tick,
                size_bytes=it.size_bytes,
                vchannels=tuple(it.vchannels),
                is_control_host=it.is_control_host,
                last_confirmed_id=it.last_confirmed_id,
                open_txns=it.open_txns,
                open_txn_bytes=it.open_txn_bytes,
                prepared_txns=it.prepared_txns,
                checkpoint_id=it.checkpoint_id,
                checkpoint_tick=it.checkpoint_tick,
                checkpoint_lag=it.next_id - max(it.checkpoint_id, it.first_id),
                growing_segments=it.growing_segments,
                growing_bytes=it.growing_bytes,
                sealed_segments=it.sealed_segments,
                read_only=it.read_only,
                holders=tuple(map(_holder, it.holders)),
                passed=tuple(map(_passed, it.passed)),
            )
            for it in answer.channels
        ]

    async def traffic(self) -> ServerTraffic:
        """What this server has counted of each vchannel since its start."""
        it = await self._calls.ask("Traffic", v1.TrafficRequest(), v1.TrafficResponse)
        return ServerTraffic(it.process, it.at_ms, tuple(_traffic(each) for each in it.vchannels))

    async def kill(self, path: str, term: int) -> int:
        """Kill an actor of this server; returns the term of the incarnation that was killed."""
        request = v1.KillRequest(path=path, term=term)
        return (await self._calls.ask("Kill", request, v1.KillResponse)).term

    async def latest_mvcc(self, vchannel: str) -> TimeTick:
        """A closed tick that no message of the vchannel exceeds, from this very server.

        Raises NotLocal when another server owns the vchannel, or this one serves no channels.
        """
        address = self._calls.address
        try:
            answer = await self._log.ask("Mvcc", v1.MvccRequest(vchannel=vchannel), v1.MvccResponse)
        except ProtocolBroken as error:
            # A coordinator does not offer the service: it serves no channels itself.
            raise NotLocal(
                f"{vchannel} is not served by {address}, which serves no channels: connect to the"
                " node that `tidemark channels` shows for it"
            ) from error
        except ChannelNotExist as error:
            raise NotLocal(f"{vchannel} is not served by {address}: {error}") from error
        return TimeTick(answer.time_tick)

    async def streaming_version(self, at_least: int) -> int:
        """The streaming version of the cluster, after raising it to `at_least` if it was lower."""
        request = v1.StreamingRequest(at_least=at_least)
        return (await self._calls.ask("Streaming", request, v1.StreamingResponse)).version

    async def pause_consumption(self, *, paused: bool) -> None:
        """Make consumers that are opened from now on wait, or let all of them start."""
        request = v1.PauseConsumptionRequest(paused=paused)
        await self._calls.ask("PauseConsumption", request, v1.PauseConsumptionResponse)

    async def actors(self, path: str) -> list[ActorInfo]:
        """The live actors of this server from `path` on, sorted by path."""
        answer = await self._calls.ask("Actors", v1.ActorsRequest(path=path), v1.ActorsResponse)
        return [
            ActorInfo(
                path=it.path,
                term=it.term,
                kind=it.kind,
                state=it.state,
                mailbox_depth=it.mailbox_depth,
                mailbox_bound=it.mailbox_bound,
                restarts=it.restarts,
                handled=it.handled,
                extra=dict(it.extra),
            )
            for it in answer.actors
        ]


def _traffic(it: v1.VchannelTraffic) -> VChannelTraffic:
    return VChannelTraffic(
        vchannel=it.vchannel,
        serial=it.serial,
        messages=it.messages,
        bytes=it.bytes,
        delivered=it.delivered,
        delivered_bytes=it.delivered_bytes,
    )


def _holder(it: v1.LogHolder) -> LogHolder:
    return LogHolder(it.pchannel, it.kind, it.name, it.bytes, it.bytes_max, it.until_ms)


def _passed(it: v1.PassedHolder) -> PassedHolder:
    return PassedHolder(
        it.pchannel,
        it.kind,
        it.name,
        it.cause,
        it.bytes,
        it.limit,
        it.removed_tick,
        it.passed_ms,
    )
