"""What every call passes on its way in and out: identity, drain, limits, errors as gRPC statuses.

It keeps the set of open calls, and how each of them is ended when the server drains.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import grpclib.server
import structlog
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError

from actors import SystemClock
from broker.edge.rpc.access.access import CALLER, CURRENT, UNCONTROLLED
from broker.edge.rpc.access.collection_names import CollectionNames
from broker.edge.rpc.access.entry import admit, check, is_limited
from broker.edge.rpc.access.gate import AccessGate
from broker.edge.rpc.append_pace import AppendPace
from broker.edge.rpc.audit.audit_trail import AuditTrail
from broker.edge.rpc.audit.audited_call import AuditedCall
from broker.edge.rpc.audit.named_objects import cut_name
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.failures import grpc_error, grpc_trailers, refusal_of, timed_out, unwrapped
from broker.edge.rpc.incoming.request_reader import RequestReader
from broker.edge.rpc.leader_gate import Gate
from broker.edge.rpc.peer_names import peer_identity
from broker.edge.rpc.quotas import Quotas
from broker.edge.rpc.request_metadata import Identity, Metadata, mistaken_identity
from broker.edge.rpc.stream_meters import EdgeMeters
from broker.model.failure import Refusal, Refused, StreamingCode, invalid_argument
from broker.ports.row_schemas import NoRowSchemas, RowSchemas
from broker.transport import ServerBatchStream, StreamGone, WireMessage, pay_for_refusal
from schemas.message_bytes import encoded

log = structlog.get_logger(__name__)

STOPPING = Refusal(
    StreamingCode.ON_SHUTDOWN, "the server is stopping; locate the channel again and retry"
)
LAST_MESSAGE_S = 1.0
"""How long the peer of a drained stream may take to read up to the end of a message."""
REVOKED_S = 0.5
"""How long a stream whose caller lost a right may take to answer what it has read."""


Q = TypeVar("Q", bound=WireMessage)
A = TypeVar("A", bound=WireMessage | bytes)


class Call:
    """One open call, as its service sees it."""

    __slots__ = (
        "_end",
        "_ending",
        "access",
        "audited",
        "metadata",
        "meters",
        "pace",
        "peer",
        "quotas",
        "reader",
        "revoked",
        "scope",
        "stream",
    )

    def __init__(
        self,
        stream: ServerBatchStream,
        metadata: Metadata,
        meters: EdgeMeters | None = None,
        pace: AppendPace | None = None,
        quotas: Quotas | None = None,
        audited: AuditedCall | None = None,
    ) -> None:
        self.audited = audited = audited or AuditTrail().begin("", None, metadata)
        self.peer = audited.peer
        self.quotas = quotas or Quotas(NoRowSchemas())
        self.access = UNCONTROLLED
        self.meters = meters or EdgeMeters()
        self.pace = pace or AppendPace()
        self.reader = RequestReader()
        self.stream = stream
        self.metadata = metadata
        self.scope = anyio.CancelScope()
        self._end: Callable[[Refusal], None] = self._cancel
        self._ending: Refusal | None = None
        self.revoked: Refusal | None = None
        """Why its caller may not go on; None while they may."""

    @property
    def identity(self) -> str:
        """Who calls, as limits know it."""
        return self.access.name or peer_identity(self.peer)

    @property
    def ending(self) -> Refusal | None:
        """Why the server ends this call; None while it does not."""
        return self._ending

    def end_with(self, end: Callable[[Refusal], None]) -> None:
        """Call `end` when the server drains; by default a draining server cancels the call."""
        self._end = end
        if self._ending is not None:
            end(self._ending)

    def end(self, refusal: Refusal) -> None:
        """End this call soon, with this refusal, because the server drains."""
        self._ending = refusal
        self._end(refusal)

    def revoke(self, refusal: Refusal) -> None:
        """End this call within REVOKED_S, because its caller lost a right; one answer may come."""
        self.revoked = refusal
        if self._ending is None:
            self.end(refusal)
            if self._end is not _let_it_finish:
                asyncio.get_running_loop().call_later(REVOKED_S, self.scope.cancel)

    def _cancel(self, _: Refusal) -> None:
        self.scope.cancel()


class Middleware:
    """Wraps plain functions as grpclib handlers.

    A function raises Refused (or an error `refusal_of` knows) to end its call with that code. Any
    other exception is logged and ends the call as UNKNOWN, with no internals in the cause.
    """

    def __init__(
        self,
        identity: Identity,
        limits: EdgeLimits,
        schemas: RowSchemas | None = None,
        audit: AuditTrail | None = None,
        gate: Gate | None = None,
        access: AccessGate | None = None,
    ) -> None:
        """`gate`: passed by each call, unless its handler is made with `ungated`."""
        self.limits = limits
        self._audit = audit or AuditTrail()
        self._gate = gate
        self.meters = EdgeMeters()
        self._pace = AppendPace()
        self._reader = RequestReader()
        # Of their own: large requests of strangers must not hold up the cluster.
        self._reader_of_processes = RequestReader(self._reader.gate)
        self.quotas = Quotas(schemas or NoRowSchemas(), self.meters)
        names = CollectionNames(schemas or NoRowSchemas(), identity.cluster)
        self.access = access or AccessGate(SystemClock().wall_ms)
        self.access.names = names
        self._identity = identity
        self._open: set[Call] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False

    @property
    def cluster(self) -> str:
        """The name of this server's cluster."""
        return self._identity.cluster

    @property
    def open_calls(self) -> int:
        """Calls in progress, streams included."""
        return len(self._open)

    def streaming(
        self,
        serve: Callable[[Call], Awaitable[None]],
        *,
        while_draining: bool = False,
        ungated: bool = False,
    ) -> Handler:
        """A handler of a stream: raw bytes, any number of messages in both directions."""

        async def handle(grpc_stream: "grpclib.server.Stream[bytes, bytes]") -> None:
            stream = ServerBatchStream(
                grpc_stream,
                limit_bytes=self.limits.frame_bytes_max,
                stall_s=self.limits.idle_peer_s,
            )
            metadata: Metadata = grpc_stream.metadata or {}
            audited = self._audit.begin(stream.method, grpc_stream.peer, metadata)
            call = Call(stream, metadata, self.meters, self._pace, self.quotas, audited)
            call.reader = self._reader
            self._open.add(call)
            self._idle.clear()
            try:
                if self._draining and not while_draining:
                    call.end(STOPPING)
                await self._admitted(serve, call, None if ungated else self._gate)
            except asyncio.CancelledError:
                audited.left()
                raise
            finally:
                stream.forget()
                self._audit.end(audited)
                self._open.discard(call)
                if not self._open:
                    self._idle.set()

        return Handler(handle, Cardinality.STREAM_STREAM, bytes, bytes)

    def unary(
        self,
        request_type: type[Q],
        answer: Callable[[Q], Awaitable[A]],
        *,
        while_draining: bool = False,
        interruptible: bool = False,
        ungated: bool = False,
    ) -> Handler:
        """A handler of one request and one answer. The request must arrive within `idle_peer_s`.

        A draining server lets the call finish; it cancels one that is `interruptible`, because that
        may wait for long.
        """

        async def serve(call: Call) -> None:
            if not interruptible:
                # Before the first await: a drain that begins during it must not cancel the call.
                call.end_with(_let_it_finish)
            request = await self._only_message(call, request_type)
            await check(self.access, call.access, call.stream.method, request)
            if call.revoked is not None:
                # While it waited for its request: what it wants is known, and begun, only now.
                raise Refused(call.revoked.code, call.revoked.cause)
            given = await answer(request)
            data = given if isinstance(given, bytes) else encoded(given)
            await call.stream.write_batch([data], deadline_s=self.limits.flush_s)

        return self.streaming(serve, while_draining=while_draining, ungated=ungated)

    def watching(
        self,
        request_type: type[Q],
        serve: Callable[[Q, Call], Awaitable[None]],
        *,
        ungated: bool = False,
    ) -> Handler:
        """A handler of one request and a stream of answers, until the peer leaves or a drain."""

        async def watch(call: Call) -> None:
            request = await self._only_message(call, request_type)
            await check(self.access, call.access, call.stream.method, request)
            await serve(request, call)

        return self.streaming(watch, ungated=ungated)

    def unknown(self) -> Handler:
        """The handler of all methods that no service has: the audit records who tries them."""

        async def refuse(grpc_stream: "grpclib.server.Stream[bytes, bytes]") -> None:
            path = cut_name(str(grpc_stream._method_name))  # noqa: SLF001 - has no public name
            audited = self._audit.begin(path, grpc_stream.peer, grpc_stream.metadata or {})
            audited.ended_with(Status.UNIMPLEMENTED)
            self._audit.end(audited)
            pay_for_refusal(grpc_stream)
            raise GRPCError(Status.UNIMPLEMENTED, "Method not found")

        return Handler(refuse, Cardinality.STREAM_STREAM, bytes, bytes)

    def drain(self) -> None:
        """Refuse new calls from now on, and end the open ones."""
        self._draining = True
        for call in list(self._open):
            call.end(STOPPING)

    async def wait_until_idle(self) -> None:
        """Wait until no call is open."""
        await self._idle.wait()

    async def _admitted(
        self, serve: Callable[[Call], Awaitable[None]], call: Call, gate: Gate | None
    ) -> None:
        try:
            mistaken = mistaken_identity(call.metadata, self._identity)
            if mistaken is not None:
                raise Refused(mistaken.code, mistaken.cause)
            if gate is not None:
                await gate(call.metadata, call.ending is not None)
            if call.ending is not None:
                raise Refused(STOPPING.code, STOPPING.cause)
            await self._let_in(call)
            # Only the service is in the scope: the refusal below must still be sent after a cancel.
            with call.scope:
                await serve(call)
            if call.scope.cancelled_caught:
                # A status in the middle of a message would look like a broken connection.
                await call.stream.flush(deadline_s=LAST_MESSAGE_S)
                raise _ended(call)
        except Exception as error:
            if isinstance(unwrapped(error), StreamGone):
                # grpclib cancels the call of a peer that is gone, but perhaps a moment later.
                raise asyncio.CancelledError from error
            if isinstance(error, GRPCError):
                call.audited.ended_with(error.status)
                _charge(call)
                raise  # a protocol that has statuses of its own
            refusal = refusal_of(error)
            if refusal is None:
                log.exception("call failed")
                refusal = Refusal(StreamingCode.UNKNOWN, "internal error; see the server's log")
            call.audited.ended(refusal)
            _charge(call)
            ending = grpc_error(refusal)
            if trailers := grpc_trailers(refusal):
                await call.stream.refuse(ending, trailers)
            raise ending from error
        finally:
            self.access.leave(call.access)

    async def _let_in(self, call: Call) -> None:
        """Find out who calls. Raises Refused."""
        if self.access.controls:
            await self.access.prepare(call.metadata, call.peer)
            call.access = admit(self.access, call.stream.method, call.metadata, call.peer)
            call.access.end = call.revoke
            call.audited.user = call.access.name
            if call.access.of_process:
                call.reader = self._reader_of_processes
        if self.quotas.limited and is_limited(call.stream.method, call.access):
            await self.quotas.begin_call(call.identity)
        # Always: a task that serves a call may have begun in the context of another one.
        CURRENT.set(call.access)
        CALLER.set(call.identity)

    async def _only_message(self, call: Call, request_type: type[Q]) -> Q:
        messages = await first_messages(call.stream, self.limits.idle_peer_s)
        if len(messages) != 1:
            raise invalid_argument(f"the call sent {len(messages)} requests; send exactly one")
        call.audited.request = request = await call.reader.read(messages[0], request_type)
        return request


async def first_messages(
    stream: ServerBatchStream, within_s: float, what: str = "request"
) -> list[bytes]:
    """The first messages of a stream; empty when the peer half-closed at once.

    Raises Refused(INNER) after `within_s`: a peer that sends nothing would keep its stream forever.
    """
    # Most often they came with the headers: then there is nothing to limit.
    if arrived := stream.read_arrived():
        return arrived
    with anyio.move_on_after(within_s):
        return await stream.read_batch()
    raise timed_out(f"no {what} arrived within {within_s:g} s")


def _charge(call: Call) -> None:
    """A refused call costs as much as one that was carried out, and may be repeated at once."""
    # Not those that are ended by what happens to their right, as thousands at a time may be.
    if call.audited.refused and call.ending is None:
        call.stream.pay_for_refusal()


def _ended(call: Call) -> Refused:
    why = call.ending or STOPPING
    return Refused(why.code, why.cause)


def _let_it_finish(_: Refusal) -> None:
    """Do nothing: a call with one answer ends soon anyway."""
