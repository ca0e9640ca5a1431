"""One HTTP/2 connection to one server: calls and streams with deadlines and typed errors.

Every way in which a call can end becomes one of the client's errors. Nothing is retried here.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import anyio
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from h2.exceptions import ProtocolError as H2ProtocolError

from broker.client.errors import (
    BadAddress,
    ConnectionLost,
    DeadlineExceeded,
    NodeUnreachable,
    NotLeader,
    NotOffered,
    NotTrusted,
    ProtocolBroken,
    RateLimited,
    ServerRefusal,
    TidemarkError,
    UnknownRefusal,
)
from broker.client.lifetime import ClientLifetime
from broker.client.refusal_kinds import refusal
from broker.model.failure import StreamingCode
from broker.transport import (
    NOT_READ,
    CallStatus,
    Channel,
    ClientBatchStream,
    MessageCodec,
    NotConnected,
    Stalled,
    StreamGone,
    WireMessage,
    open_call,
    unary_call,
)
from broker.transport.codec import RawDetailsCodec
from broker.transport.tls import LOST_IN_HANDSHAKE, ClientTls, failed_check, is_lost
from schemas.encoding.oversize import FrameTooLarge
from schemas.status import read_status_details
from schemas.wire import Malformed

STREAM_WINDOW_BYTES = 1024 * 1024
"""Unread bytes of one stream: the memory that a stopped reader holds."""

CONNECTION_WINDOW_BYTES = 2**31 - 1
"""Unlimited: stopped readers must not block the other streams of the connection."""

PING_EVERY_S = 5.0
"""Who only reads sends nothing else that a host that is away could leave unacknowledged."""
PING_ANSWER_S = 20.0
RESPONSE_BYTES_MAX = 64 * 1024 * 1024
"""Of one message; a longer one ends the stream."""

STALL_S = 15.0
"""The longest pause inside a message that has partly arrived."""

UNREACHABLE_S = 1.2
"""Failed attempts for so long count as unreachable. With the pauses between them, the program
learns it within 2 s."""
DIAL_S_MAX = 1.8
"""An attempt may be lost on the way and is repeated by the system after 1 s."""

NO_METADATA: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Given:
    """Who named an address to this client, and whether that server still does."""

    by: str
    still: Callable[[], bool]


W = TypeVar("W", bound=WireMessage)


class Connection:
    """A server at `address`; connects when first used and again when it broke.

    `given`: who named the address; None when the program did. Raises BadAddress when `address` is
    not HOST:PORT.
    """

    def __init__(
        self,
        address: str,
        *,
        cluster: str,
        lifetime: ClientLifetime,
        given: Given | None = None,
        tls: ClientTls | None = None,
        token: str = "",
    ) -> None:
        host, port = _host_and_port(address)
        self.address = address
        self.lifetime = lifetime
        self._given = given
        self._proof = {"authorization": f"Bearer {token}"} if token else {}
        self._cluster = cluster
        self._channel = Channel(
            host,
            port,
            codec=MessageCodec(),
            status_details_codec=RawDetailsCodec(),
            config=Configuration(
                http2_stream_window_size=STREAM_WINDOW_BYTES,
                http2_connection_window_size=CONNECTION_WINDOW_BYTES,
                # Pings find a peer that vanished without closing, as in Milvus's clients.
                _keepalive_time=PING_EVERY_S,
                _keepalive_timeout=PING_ANSWER_S,
                _keepalive_permit_without_calls=True,
                # 0: no limit. By default grpclib stops after two, and a dead peer would stay
                # unnoticed.
                _http2_max_pings_without_data=0,
                _http2_min_sent_ping_interval_without_data=PING_EVERY_S,
            ),
        )
        self._channel.secure(tls)
        if given is not None:
            self.limit_dialling(DIAL_S_MAX)

    async def call(
        self, path: str, request: WireMessage, response_type: type[W], *, deadline_s: float
    ) -> W:
        """One request, one response. Raises a TidemarkError for any failure.

        A call that was refused because its caller makes too many is made again when the server
        says, unless that is after the deadline.
        """
        until_s = anyio.current_time() + deadline_s
        while True:
            try:
                left_s = until_s - anyio.current_time()
                return await self._call(path, request, response_type, deadline_s=max(left_s, 0.0))
            except RateLimited as error:
                if not error.retry_s or anyio.current_time() + error.retry_s >= until_s:
                    raise
                pause_s = error.retry_s
            await anyio.sleep(pause_s)

    async def _call(
        self, path: str, request: WireMessage, response_type: type[W], *, deadline_s: float
    ) -> W:
        # Not in `converse`: pending appends may need a new stream while the client is being closed.
        self.lifetime.check()
        with self.lifetime.busy(), self._translated():
            answer = await unary_call(
                self._channel,
                path,
                request,
                response_type,
                metadata=self._metadata(NO_METADATA),
                deadline_s=deadline_s,
            )
            if answer is None:
                raise ProtocolBroken(f"{self.address}: {path} ended without an answer")
            return answer

    @asynccontextmanager
    async def converse(
        self, path: str, metadata: Mapping[str, str] = NO_METADATA, *, deadline_s: float
    ) -> AsyncIterator["Conversation"]:
        """Open a stream within `deadline_s`. Leaving the context resets an open stream."""
        opening = open_call(
            self._channel,
            path,
            self._metadata(metadata),
            limit_bytes=RESPONSE_BYTES_MAX,
            stall_s=STALL_S,
        )
        # Around the caller's block as well, because reads and writes on the stream fail there.
        with self._translated():
            async with asyncio.timeout(deadline_s) as opened, opening as stream:
                # The deadline is for the opening; each read and write on the stream has its own.
                opened.reschedule(None)
                yield Conversation(stream)

    def limit_dialling(self, seconds: float) -> None:
        """Give up an attempt to connect to an address that was never reached after so long."""
        self._channel.dial_s_max = seconds

    def first_answer_s(self, longest_s: float) -> float:
        """How long a new stream may be silent, of at most `longest_s`, before it has failed."""
        return longest_s

    def others_may_answer(self) -> bool:
        """Whether another server may know what this one does not say."""
        return False

    def tries_on(self, _: TidemarkError) -> bool:
        """Whether the next attempt may go to another server than the one that failed."""
        return False

    def close(self) -> None:
        """Close the connection; every stream on it ends at once."""
        self._channel.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate errors of grpclib, h2, the transport and the system into the client's."""
        try:
            yield
        except Exception as error:
            translated = self._unreachable(error) or _translation(error, self.address)
            refused = self._channel.refused
            if refused and isinstance(translated, ConnectionLost):
                # Retriable all the same: a server that is killed ends connections like that, too.
                translated = ConnectionLost(f"{self.address}: {refused}")
            if translated is None:
                raise
            # A known refusal is the server's answer: grpclib's traceback would only distract.
            known = isinstance(translated, ServerRefusal) and not isinstance(
                translated, UnknownRefusal
            )
            raise translated from None if known else error

    def _unreachable(self, error: Exception) -> NodeUnreachable | None:
        """The error for an address that was never reached, although the server still names it."""
        given, channel = self._given, self._channel
        if given is None or channel.reached or not isinstance(error, OSError):
            return None
        if channel.failing_s() < UNREACHABLE_S or not given.still():
            return None
        return NodeUnreachable(
            self.address, given.by, error.strerror or str(error) or LOST_IN_HANDSHAKE
        )

    def _metadata(self, more: Mapping[str, str]) -> dict[str, str]:
        return {"cluster": self._cluster, **self._proof, **more}


class Conversation:
    """One open bidirectional stream. One task reads it, one writes it."""

    def __init__(self, stream: ClientBatchStream) -> None:
        self._stream = stream
        # Kept: until Python 3.12 each look-up of the running loop is a system call.
        self._now_s = asyncio.get_running_loop().time
        self._reading_since_s: float | None = None

    def silent_s(self) -> float:
        """How long the reading task has waited for a message by now; 0 while it does not."""
        since_s = self._reading_since_s
        return 0.0 if since_s is None else self._now_s() - since_s

    async def read(self, deadline_s: float | None) -> list[bytes]:
        """All messages that have arrived, at least one.

        Raises an error for any end of the stream, also a regular one, and DeadlineExceeded after
        `deadline_s` seconds without a message.
        """
        self._reading_since_s = self._now_s()
        try:
            if deadline_s is None:
                messages = await self._stream.read_batch()
            else:
                messages = await self._read_within(deadline_s)
        finally:
            self._reading_since_s = None
        if not messages:
            raise _ended(self._stream.status())
        return messages

    def take_at_once(self, taker: Callable[[bytes], bool]) -> None:
        """Offer each lone message to `taker` first, see `BatchStream.take_at_once`.

        What it takes counts for the deadline of the task that reads.
        """

        def take(message: bytes) -> bool:
            if not taker(message):
                return False
            if self._reading_since_s is not None:
                self._reading_since_s = self._now_s()
            return True

        self._stream.take_at_once(take)

    async def _read_within(self, deadline_s: float) -> list[bytes]:
        while True:
            since_s = self._reading_since_s
            try:
                async with asyncio.timeout(deadline_s - self.silent_s()):
                    return await self._stream.read_batch()
            except TimeoutError:
                # Else something was taken meanwhile, and the deadline counts from then on.
                if self._reading_since_s == since_s:
                    cause = f"the server sent nothing for {deadline_s} s"
                    raise DeadlineExceeded(cause) from None

    async def write(self, framed: bytes, deadline_s: float) -> None:
        """Send framed messages; returns when the operating system has them."""
        await self._stream.write_framed(framed, deadline_s=deadline_s)

    async def room(self) -> int:
        """Wait until flow control allows bytes; returns how many."""
        return await self._stream.room()

    def room_now(self) -> int:
        """How many bytes flow control allows now."""
        return self._stream.room_now()

    def write_at_once(self, framed: bytes) -> bool:
        """Like `write` if that need not wait; otherwise False, and nothing is sent.

        Not while a `write` is under way: its parts and these bytes would mix.
        """
        return self._stream.write_at_once(framed)

    async def end(self) -> None:
        """Half-close: nothing more will be sent."""
        await self._stream.end()


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadAddress(f"{address!r} is not HOST:PORT, such as 127.0.0.1:19531")
    return host.strip("[]"), int(port)


def _translation(error: Exception, address: str) -> TidemarkError | None:
    match error:
        case GRPCError(status=status, message=message, details=details):
            return _ended(CallStatus(status.value, message or "", details or b""))
        case StreamGone() | StreamTerminatedError() | Stalled() | ProtocolError():
            gone = ConnectionLost(f"{address}: {error}")
            gone.unsent = str(error) == NOT_READ
            return gone
        case H2ProtocolError():
            return ConnectionLost(f"{address}: {type(error).__name__} {error}")
        # These before OSError, of which they are subclasses.
        case ssl.SSLError() if is_lost(error):
            return ConnectionLost(f"{address}: {LOST_IN_HANDSHAKE}")
        case ssl.SSLError():
            return NotTrusted(f"{address}: {failed_check(error)}")
        case TimeoutError():
            return DeadlineExceeded(f"{address} did not answer in time")
        case OSError():
            # asyncio says nothing of a peer that ends the handshake.
            cause = error.strerror or str(error) or LOST_IN_HANDSHAKE
            lost = ConnectionLost(f"cannot reach {address}: {cause}")
            lost.unsent = isinstance(error, ConnectionRefusedError | NotConnected)
            return lost
        case FrameTooLarge() | Malformed():
            return ProtocolBroken(f"{address}: {error}")
        case _:
            return None


def _ended(status: CallStatus) -> TidemarkError:
    """The error for the end of a call; an end without a reason counts as a lost connection."""
    try:
        details = read_status_details(status.details)
    except Malformed:
        details = None
    if details is not None and details.leader is not None:
        not_leader = NotLeader(details.cause)
        not_leader.leader = details.leader
        return not_leader
    if details is not None:
        refused = refusal(details.code, details.cause)
        refused.retry_s = details.retry_ms / 1000
        return refused
    match status.code:
        # The server ends no stream regularly that the client still reads, unless it is closing.
        case Status.OK.value:
            return ConnectionLost("the server ended the stream")
        case Status.UNAVAILABLE.value | Status.CANCELLED.value:
            return ConnectionLost(status.message or "the server is not available")
        case Status.DEADLINE_EXCEEDED.value:
            return DeadlineExceeded(status.message or "the server exceeded the deadline")
        case Status.UNIMPLEMENTED.value:
            return NotOffered("the server does not offer this call; is it a Tidemark broker?")
        case _:
            return refusal(StreamingCode.UNKNOWN, status.message)
