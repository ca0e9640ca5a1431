"""What the server says about itself: health, channels, actors.

It keeps no copy. Next: broker/edge/tidemark/admin_service.py
"""

from collections.abc import Mapping
from dataclasses import dataclass

from broker.client.errors import ChannelNotExist, NotLocal, ProtocolBroken
from broker.client.net.connection import Connection
from broker.model.ids import TimeTick
from schemas.generated.tidemark import v1

_SERVICE = "/tidemark.v1.Admin/"


@dataclass(frozen=True, slots=True)
class ChannelTrouble:
    """A pchannel that takes no appends (`state` refusing), or that nobody serves; and why."""

    name: str
    state: str
    cause: str


@dataclass(frozen=True, slots=True)
class Damage:
    """A place in a stored log that could not be read, `times` since the server started.

    `file` is relative to the folder of the logs. `skipped`: readers were led around it.
    """

    pchannel: str
    file: str
    offset: int
    reason: str
    skipped: bool
    times: int


@dataclass(frozen=True, slots=True)
class Health:
    """One server process. `state`: starting, healthy, degraded or stopping."""

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


@dataclass(frozen=True, slots=True)
class ChannelInfo:
    """One pchannel: who serves it at which term, and what it holds.

    `closed_tick`: nothing with a tick up to it is still to come. `last_confirmed_id`: who reads
    from there on sees every later message whole; open transactions hold it back.
    `checkpoint_id`: where a restart begins to read the log again, `checkpoint_lag` messages of it;
    `checkpoint_tick`: what it knows without. Both are 0 while nothing was saved yet.
    Segments are those of collections: growing ones take rows, sealed ones wait for their Flush.
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


@dataclass(frozen=True, slots=True)
class ActorInfo:
    """One actor or supervisor of the server; `extra` is what it says about itself."""

    path: str
    term: int
    kind: str
    state: str
    mailbox_depth: int
    mailbox_bound: int
    restarts: int
    handled: int
    extra: Mapping[str, str]


class Admin:
    """Each call has its own deadline and raises what `errors` has."""

    def __init__(self, connection: Connection, *, deadline_s: float) -> None:
        self._connection = connection
        self._deadline_s = deadline_s

    async def health(self) -> Health:
        """How the server is."""
        it = await self._connection.call(
            _SERVICE + "Health", v1.HealthRequest(), v1.HealthResponse, deadline_s=self._deadline_s
        )
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
        )

    async def channels(self) -> list[ChannelInfo]:
        """Every pchannel of the cluster, sorted by name."""
        answer = await self._connection.call(
            _SERVICE + "Channels",
            v1.ChannelsRequest(),
            v1.ChannelsResponse,
            deadline_s=self._deadline_s,
        )
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
            )
            for it in answer.channels
        ]

    async def kill(self, path: str, term: int) -> int:
        """The term of the incarnation that was killed."""
        answer = await self._connection.call(
            _SERVICE + "Kill",
            v1.KillRequest(path=path, term=term),
            v1.KillResponse,
            deadline_s=self._deadline_s,
        )
        return answer.term

    async def latest_mvcc(self, vchannel: str) -> TimeTick:
        """A closed tick that no message of the vchannel exceeds, from this very server.

        Raises NotLocal when another one owns the vchannel, or this one serves no channel at all.
        """
        try:
            answer = await self._connection.call(
                "/tidemark.v1.Log/Mvcc",
                v1.MvccRequest(vchannel=vchannel),
                v1.MvccResponse,
                deadline_s=self._deadline_s,
            )
        except ProtocolBroken as error:
            where = self._connection.address
            raise NotLocal(
                f"{vchannel} is not served by {where}, which serves no channels: connect to the"
                " node that `tidemark channels` shows for it"
            ) from error
        except ChannelNotExist as error:
            where = self._connection.address
            raise NotLocal(f"{vchannel} is not served by {where}: {error}") from error
        return TimeTick(answer.time_tick)

    async def streaming_version(self, at_least: int) -> int:
        """The cluster's, after raising it to `at_least` when it was lower."""
        answer = await self._connection.call(
            _SERVICE + "Streaming",
            v1.StreamingRequest(at_least=at_least),
            v1.StreamingResponse,
            deadline_s=self._deadline_s,
        )
        return answer.version

    async def pause_consumption(self, *, paused: bool) -> None:
        """Hold consumers back that are opened from now on, or let all go on."""
        await self._connection.call(
            _SERVICE + "PauseConsumption",
            v1.PauseConsumptionRequest(paused=paused),
            v1.PauseConsumptionResponse,
            deadline_s=self._deadline_s,
        )

    async def actors(self, path: str) -> list[ActorInfo]:
        """The live tree from `path` on, sorted by path."""
        answer = await self._connection.call(
            _SERVICE + "Actors",
            v1.ActorsRequest(path=path),
            v1.ActorsResponse,
            deadline_s=self._deadline_s,
        )
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
