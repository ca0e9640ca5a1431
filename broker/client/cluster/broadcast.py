"""One message for many vchannels, from a program's side: start it, acknowledge a copy, wait.

Owns the key that makes it safe to ask again. Next: broker/edge/milvus/broadcast_service.py
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Unpack
from uuid import uuid4

from broker.client.errors import (
    BadTarget,
    DeadlineExceeded,
    InvalidArgument,
    OutcomeUnknown,
)
from broker.client.message import Appended, Kind, Message, Received, stored_properties
from broker.client.net.connection import Connection
from broker.client.net.retry_call import retry_call
from broker.model.broadcast import ResourceDomain, ResourceKey
from broker.model.ids import BroadcastId, MessageId, TimeTick, VChannelName
from schemas.generated.milvus.proto import common, messages, streaming
from schemas.generated.tidemark import v1
from schemas.properties.broadcast_header import BroadcastHeader, HeaderKey, write_broadcast_header
from schemas.properties.keys import BROADCAST, IDEMPOTENCY, IdempotencyKey
from schemas.wire import rocksmq_id, rocksmq_id_text

_MILVUS: Final = "/milvus.proto.streaming.StreamingCoordBroadcastService/"
_OURS: Final = "/tidemark.v1.Broadcasts/"
BROADCAST_S: Final = 30.0
WAIT_S: Final = 30.0
CLUSTER_DOMAIN: Final = 1

Resolve = Callable[[str], Awaitable[tuple[VChannelName, ...]]]


@dataclass(frozen=True, slots=True)
class Broadcasted:
    """A broadcast that took effect: `results[vchannel]` says where its copy is."""

    id: BroadcastId
    results: Mapping[str, Appended]


@dataclass(frozen=True, slots=True)
class BroadcastInfo:
    """One broadcast that is not finished. `name` is empty while it waits for its keys."""

    name: str
    state: str
    type: int
    keys: tuple[ResourceKey, ...]
    vchannels: int
    appended: int
    acked: int
    poison: str
    failures: int
    last_error: str


@dataclass(frozen=True, slots=True)
class LockInfo:
    """Who holds these keys, or waits for them (`held` False, `owner` empty)."""

    owner: str
    keys: tuple[ResourceKey, ...]
    held: bool


class How(Kind, total=False):
    """`ack_sync_up`, the program's own `properties`, and what Milvus's own messages need."""

    ack_sync_up: bool
    properties: Mapping[str, str]


class Broadcasts:
    """`log.broadcast`. Every call has a deadline, and raises what `errors` has."""

    def __init__(self, connection: Connection, resolve: Resolve, *, deadline_s: float) -> None:
        self._connection = connection
        self._resolve = resolve
        self._deadline_s = deadline_s

    async def append(
        self,
        targets: str | Iterable[str],
        payload: bytes,
        *,
        keys: Iterable[ResourceKey] = (),
        idempotency_key: str | None = None,
        deadline_s: float = BROADCAST_S,
        **how: Unpack[How],
    ) -> Broadcasted:
        """Put one message on every vchannel of the targets; back when it took effect everywhere.

        Once recorded it comes to all of them, whatever happens, though not at one tick. Broadcasts
        that name a common key, unless both share it, are carried out one after the other, and lie
        in that order on every vchannel they have in common. With `ack_sync_up` each vchannel's copy
        must also have been processed.

        `idempotency_key`: the same key and content again give the same broadcast and answer, for
        as long as the broker remembers it (the newest 8,192 of the last day). Without one the
        client makes one up for this call, so that its own retries are no second broadcast.

        Raises OutcomeUnknown when the deadline passed: it may take effect yet; ask again with the
        key. Unrecoverable when it cannot go on and an operator decides, or is too large.
        InvalidArgument for a vchannel that is not, one named twice, or none at all.
        """
        names = [targets] if isinstance(targets, str) else list(targets)
        vchannels = [vchannel for name in names for vchannel in await self._resolve(name)]
        key = IdempotencyKey(CLUSTER_DOMAIN, 0, idempotency_key or f"client-{uuid4().hex}")
        sync_up = how.get("ack_sync_up", False)
        told: dict[str, Any] = {name: it for name, it in how.items() if name != "ack_sync_up"}
        message = Message(payload, **told)
        stored = stored_properties(message) | IDEMPOTENCY.entry(key)
        header = BroadcastHeader(
            0,
            tuple(vchannels),
            tuple(HeaderKey(int(it.domain), it.key, it.shared) for it in keys),
            sync_up,
        )
        stored[BROADCAST.key] = write_broadcast_header(header)
        request = streaming.BroadcastRequest(
            message=messages.Message(payload=bytes(payload), properties=stored)
        )

        async def start(left_s: float) -> streaming.BroadcastResponse:
            return await self._connection.call(
                _MILVUS + "Broadcast", request, streaming.BroadcastResponse, deadline_s=left_s
            )

        try:
            answer = await retry_call(start, deadline_s)
        except DeadlineExceeded as error:
            raise OutcomeUnknown(
                f"no answer within {deadline_s} s: the broadcast may take effect yet; ask again"
                f" with idempotency_key={key.client_key!r} ({error})"
            ) from error
        results = {name: _appended(name, it) for name, it in answer.results.items()}
        return Broadcasted(BroadcastId(answer.broadcast_id), results)

    async def ack(self, message: Received, *, deadline_s: float | None = None) -> None:
        """Say that this copy of a broadcast was processed here; durable on return.

        Repeating it, or being late, does no harm. Raises BadTarget for what is no broadcast.
        """
        if message.broadcast_id is None:
            raise BadTarget(f"message {message.id} of {message.vchannel} is no broadcast's")
        stored = common.ImmutableMessage(
            id=common.MessageId(id=rocksmq_id_text(message.id), WAL_name=common.WalName(1)),
            payload=bytes(message.payload),
            properties=dict(message.tags),
        )
        request = streaming.BroadcastAckRequest(
            broadcast_id=message.broadcast_id, vchannel=message.vchannel, message=stored
        )

        async def acknowledge(left_s: float) -> None:
            await self._connection.call(
                _MILVUS + "Ack", request, streaming.BroadcastAckResponse, deadline_s=left_s
            )

        await retry_call(acknowledge, deadline_s or self._deadline_s)

    async def block_until_resource_key_ack_once(
        self, key: ResourceKey, *, deadline_s: float = WAIT_S
    ) -> None:
        """Until each broadcast that holds `key` now has one vchannel that acknowledged."""
        await self._wait_for(key, deadline_s, all_acked=False)

    async def block_until_resource_key_ack_all(
        self, key: ResourceKey, *, deadline_s: float = WAIT_S
    ) -> None:
        """Until each broadcast that holds `key` now has been acknowledged on all its vchannels."""
        await self._wait_for(key, deadline_s, all_acked=True)

    async def locks(self) -> list[LockInfo]:
        """Who holds which keys and who waits, in the order they came."""
        answer = await self._connection.call(
            _OURS + "Locks", v1.ListLocksRequest(), v1.ListLocksResponse,
            deadline_s=self._deadline_s,
        )  # fmt: skip
        return [LockInfo(it.owner, _keys(it.keys), it.held) for it in answer.locks]

    async def list(self, *, quarantine_only: bool = False) -> list[BroadcastInfo]:
        """Those that are not finished; first those that wait for their keys."""
        answer = await self._connection.call(
            _OURS + "List",
            v1.ListBroadcastsRequest(quarantine_only=quarantine_only),
            v1.ListBroadcastsResponse,
            deadline_s=self._deadline_s,
        )
        return [_info(it) for it in answer.broadcasts]

    async def retry(self, name: str) -> None:
        """Try again what failed of a broadcast in quarantine. Raises InvalidArgument."""
        await self._connection.call(
            _OURS + "Retry", v1.RetryBroadcastRequest(name=name), v1.RetryBroadcastResponse,
            deadline_s=self._deadline_s,
        )  # fmt: skip

    async def skip(self, name: str) -> None:
        """Call a broadcast in quarantine done as it is. Raises InvalidArgument."""
        await self._connection.call(
            _OURS + "Skip", v1.SkipBroadcastRequest(name=name), v1.SkipBroadcastResponse,
            deadline_s=self._deadline_s,
        )  # fmt: skip

    async def _wait_for(self, key: ResourceKey, deadline_s: float, *, all_acked: bool) -> None:
        request = v1.WaitForKeyRequest(
            key=v1.ResourceKey(domain=int(key.domain), key=key.key), all_acked=all_acked
        )

        async def wait(left_s: float) -> None:
            await self._connection.call(
                _OURS + "WaitForKey", request, v1.WaitForKeyResponse, deadline_s=left_s
            )

        await retry_call(wait, deadline_s)


def _appended(vchannel: str, it: streaming.ProduceMessageResponseResult) -> Appended:
    return Appended(
        VChannelName(vchannel),
        _id(it.id),
        TimeTick(it.timetick),
        _id(it.last_confirmed_id),
    )


def _id(found: common.MessageId | None) -> MessageId:
    return MessageId(rocksmq_id(found.id if found else ""))


def _info(it: v1.BroadcastInfo) -> BroadcastInfo:
    return BroadcastInfo(
        name=it.name,
        state=it.state,
        type=it.type,
        keys=_keys(it.keys),
        vchannels=it.vchannels,
        appended=it.appended,
        acked=it.acked,
        poison=it.poison,
        failures=it.failures,
        last_error=it.last_error,
    )


def _keys(found: Iterable[v1.ResourceKey]) -> tuple[ResourceKey, ...]:
    try:
        return tuple(ResourceKey(ResourceDomain(it.domain), it.key, it.shared) for it in found)
    except ValueError as error:
        raise InvalidArgument(f"the server knows another kind of resource key: {error}") from error
