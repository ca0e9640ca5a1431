"""Broadcasts: append one message to many vchannels, acknowledge a copy, wait for locks.

Every broadcast carries an idempotency key, so that a request that is sent again is not a second
broadcast.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Unpack
from uuid import uuid4

from broker.client.cluster.service import ServiceCalls
from broker.client.cluster.targets import Targets
from broker.client.errors import (
    BadTarget,
    ClosedClient,
    DeadlineExceeded,
    InvalidArgument,
    OutcomeUnknown,
)
from broker.client.message import Appended, Kind, Message, Received, stored_properties
from broker.client.net.connection import Connection
from broker.client.net.retry_call import retry_call
from broker.model.broadcast import ResourceDomain, ResourceKey
from broker.model.ids import BroadcastId, MessageId, TimeTick, VChannelName
from broker.model.message import MessageType
from schemas.generated.milvus.proto import common, messages, streaming
from schemas.generated.tidemark import v1
from schemas.properties.broadcast_header import BroadcastHeader, HeaderKey, write_broadcast_header
from schemas.properties.keys import BROADCAST, IDEMPOTENCY, IdempotencyKey
from schemas.wire import rocksmq_id, rocksmq_id_text

_MILVUS: Final = "milvus.proto.streaming.StreamingCoordBroadcastService"
BROADCAST_S: Final = 30.0
WAIT_S: Final = 30.0
CLUSTER_DOMAIN: Final = 1


@dataclass(frozen=True, slots=True)
class Broadcasted:
    """A broadcast that took effect; `results[vchannel]` says where its copy is."""

    id: BroadcastId
    results: Mapping[str, Appended]


@dataclass(frozen=True, slots=True)
class BroadcastInfo:
    """A broadcast that is not finished. `name` is empty while it waits for its keys.

    `acked_by`: a copy counts as acknowledged by its durable "write", or with `ack_sync_up` by the
    "node" that applied it or by a "consumer"; empty from a server that does not say.
    """

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
    acked_by: str = ""


@dataclass(frozen=True, slots=True)
class LockInfo:
    """Keys that a broadcast holds, or waits for (`held` is False and `owner` empty)."""

    owner: str
    keys: tuple[ResourceKey, ...]
    held: bool


class BroadcastOptions(Kind, total=False):
    """`ack_sync_up`, the program's own `properties`, and what Milvus's own messages need."""

    ack_sync_up: bool
    properties: Mapping[str, str]


class Broadcasts:
    """`log.broadcast`. Every call has a deadline and raises what `broker.client.errors` has."""

    def __init__(self, connection: Connection, targets: Targets, *, deadline_s: float) -> None:
        self._milvus = ServiceCalls(connection, _MILVUS, deadline_s=deadline_s)
        self._calls = ServiceCalls(connection, "tidemark.v1.Broadcasts", deadline_s=deadline_s)
        self._targets = targets
        self._deadline_s = deadline_s

    async def append(
        self,
        targets: str | Iterable[str],
        payload: bytes,
        *,
        keys: Iterable[ResourceKey] = (),
        idempotency_key: str | None = None,
        deadline_s: float = BROADCAST_S,
        **options: Unpack[BroadcastOptions],
    ) -> Broadcasted:
        """Append one message to every vchannel of the targets; returns when all copies are durable.

        Once recorded, the broadcast reaches all of them whatever fails, each at a tick of its own.
        Broadcasts with a key in common, unless both share it, are carried out one after the other
        and lie in that order on every vchannel they have in common. With `ack_sync_up` each copy
        must also have been processed.

        `idempotency_key`: a second call with the same key and content is the same broadcast and
        returns the same answer, while the broker remembers it (the newest 8,192 of the last day).
        Without one the client makes up a key, so that its own retries are not a second broadcast.

        Raises OutcomeUnknown at the deadline, or when the client is closed meanwhile: it may still
        take effect; call again with the same key. Unrecoverable when it is too large, or cannot
        continue until an operator decides. SchemaVersionMismatch for data that is broadcast to a
        collection with a schema. InvalidArgument for a target that is not a vchannel,
        one named twice, or none.
        """
        names = self._targets.names(targets)
        vchannels = await self._vchannels(names, options.get("type", MessageType.INSERT))
        key = IdempotencyKey(CLUSTER_DOMAIN, 0, idempotency_key or f"client-{uuid4().hex}")
        fields: dict[str, Any] = {name: it for name, it in options.items() if name != "ack_sync_up"}
        stored = stored_properties(Message(payload, **fields)) | IDEMPOTENCY.entry(key)
        header = BroadcastHeader(
            0,
            tuple(vchannels),
            tuple(HeaderKey(int(it.domain), it.key, it.shared) for it in keys),
            options.get("ack_sync_up", False),
        )
        stored[BROADCAST.key] = write_broadcast_header(header)
        request = streaming.BroadcastRequest(
            message=messages.Message(payload=bytes(payload), properties=stored)
        )

        async def start(left_s: float) -> streaming.BroadcastResponse:
            return await self._milvus.ask(
                "Broadcast", request, streaming.BroadcastResponse, deadline_s=left_s
            )

        self._milvus.check_usable()
        try:
            answer = await retry_call(start, deadline_s)
        except (ClosedClient, DeadlineExceeded) as error:
            # Closed now, not before the call: the broker may have got the request.
            raise OutcomeUnknown(
                f"no answer: the broadcast may still take effect; call again"
                f" with idempotency_key={key.client_key!r} ({error})"
            ) from error
        results = {name: _appended(name, it) for name, it in answer.results.items()}
        return Broadcasted(BroadcastId(answer.broadcast_id), results)

    async def _vchannels(self, names: Iterable[str], kind: int) -> list[VChannelName]:
        # Not `resolve_all`, which drops repeats: a target named twice is to be refused.
        found = [await self._targets.resolve(name) for name in names]
        for each in found:
            if each.rows_of is not None:
                each.check_takes(kind)
        return [it for each in found for it in each.vchannels]

    async def ack(self, message: Received, *, deadline_s: float | None = None) -> None:
        """Acknowledge that this copy of a broadcast was processed; durable on return.

        May be repeated, and may be late. Raises BadTarget for a message that is not a broadcast.
        """
        if message.broadcast_id is None:
            raise BadTarget(f"message {message.id} of {message.vchannel} is not of a broadcast")
        stored = common.ImmutableMessage(
            id=common.MessageId(id=rocksmq_id_text(message.id), WAL_name=common.WalName(1)),
            payload=bytes(message.payload),
            properties=dict(message.tags),
        )
        request = streaming.BroadcastAckRequest(
            broadcast_id=message.broadcast_id, vchannel=message.vchannel, message=stored
        )

        async def acknowledge(left_s: float) -> None:
            await self._milvus.ask(
                "Ack", request, streaming.BroadcastAckResponse, deadline_s=left_s
            )

        await retry_call(acknowledge, deadline_s or self._deadline_s)

    async def block_until_resource_key_ack_once(
        self, key: ResourceKey, *, deadline_s: float = WAIT_S
    ) -> None:
        """Wait until each broadcast that holds `key` now is acknowledged on some vchannel.

        One that is skipped meanwhile counts as acknowledged.
        """
        await self._wait_for(key, deadline_s, all_acked=False)

    async def block_until_resource_key_ack_all(
        self, key: ResourceKey, *, deadline_s: float = WAIT_S
    ) -> None:
        """Wait until each broadcast that holds `key` now is acknowledged on all its vchannels.

        One that is skipped meanwhile counts as acknowledged.
        """
        await self._wait_for(key, deadline_s, all_acked=True)

    async def locks(self) -> list[LockInfo]:
        """Which broadcast holds which keys, and which wait, in the order of arrival."""
        answer = await self._calls.ask("Locks", v1.ListLocksRequest(), v1.ListLocksResponse)
        return [LockInfo(it.owner, _keys(it.keys), it.held) for it in answer.locks]

    async def list(self, *, quarantine_only: bool = False) -> list[BroadcastInfo]:
        """The broadcasts that are not finished; first those that wait for their keys."""
        request = v1.ListBroadcastsRequest(quarantine_only=quarantine_only)
        answer = await self._calls.ask("List", request, v1.ListBroadcastsResponse)
        return [_info(it) for it in answer.broadcasts]

    async def retry(self, name: str) -> None:
        """Try again what failed of a broadcast in quarantine. Raises InvalidArgument."""
        request = v1.RetryBroadcastRequest(name=name)
        await self._calls.ask("Retry", request, v1.RetryBroadcastResponse)

    async def skip(self, name: str) -> None:
        """End a broadcast in quarantine as it is. Raises InvalidArgument."""
        request = v1.SkipBroadcastRequest(name=name)
        await self._calls.ask("Skip", request, v1.SkipBroadcastResponse)

    async def _wait_for(self, key: ResourceKey, deadline_s: float, *, all_acked: bool) -> None:
        request = v1.WaitForKeyRequest(
            key=v1.ResourceKey(domain=int(key.domain), key=key.key), all_acked=all_acked
        )

        async def wait(left_s: float) -> None:
            await self._calls.ask("WaitForKey", request, v1.WaitForKeyResponse, deadline_s=left_s)

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
        acked_by=it.acked_by,
    )


def _keys(found: Iterable[v1.ResourceKey]) -> tuple[ResourceKey, ...]:
    try:
        return tuple(ResourceKey(ResourceDomain(it.domain), it.key, it.shared) for it in found)
    except ValueError as error:
        raise InvalidArgument(
            f"unknown kind of resource key: {error}; update the client"
        ) from error
