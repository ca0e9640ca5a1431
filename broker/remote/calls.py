"""Unary calls to another process of the cluster, with a deadline; failures are `Refused`.

The connection is made at the first call, and again after it broke. A failed call is not retried.
"""

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TypeVar

from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from h2.exceptions import ProtocolError as H2ProtocolError

from broker.model.failure import DoesNotLead, Refused, StreamingCode
from broker.ports.nodes import Unreachable
from broker.transport import (
    Channel,
    MessageCodec,
    WireMessage,
    unary_call,
)
from broker.transport.codec import RawDetailsCodec
from broker.transport.tls import LOST_IN_HANDSHAKE, ClientTls, failed_check, is_lost
from schemas.status import read_status_details
from schemas.wire import Malformed

W = TypeVar("W", bound=WireMessage)


class Caller(Protocol):
    """Unary calls to a process of the cluster, wherever it is."""

    async def call(
        self, path: str, request: WireMessage, answer: type[W], *, deadline_s: float
    ) -> W:
        """Send one request and return its answer. Raises Unreachable, or the peer's Refused."""
        ...


def _nothing() -> Mapping[str, str]:
    return {}


class Calls:
    """Calls to the process at `host:port`; `metadata` is sent with every call.

    `changing`: more metadata, asked for anew with every call. `tls`: None calls without TLS.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metadata: Mapping[str, str],
        tls: ClientTls | None = None,
        changing: Callable[[], Mapping[str, str]] = _nothing,
    ) -> None:
        self._changing = changing
        self._address = f"{host}:{port}"
        self._metadata = dict(metadata)
        self._closed = False
        self._channel = Channel(
            host,
            port,
            codec=MessageCodec(),
            status_details_codec=RawDetailsCodec(),
            config=Configuration(),
        )
        self._channel.secure(tls)

    async def call(
        self, path: str, request: WireMessage, answer: type[W], *, deadline_s: float
    ) -> W:
        """Send one request and return its answer. Raises Unreachable, or the peer's Refused."""
        if self._closed:  # grpclib would connect again, and nothing would close that connection
            raise Unreachable(
                f"the connection to {self._address} is closed; look up the process again"
            )
        # Translated outside of the timeout, so that its TimeoutError becomes Unreachable as well.
        with self._translated(deadline_s), self._left_closed():
            received = await unary_call(
                self._channel,
                path,
                request,
                answer,
                metadata={**self._metadata, **self._changing()},
                deadline_s=deadline_s,
            )
        if received is None:
            raise Unreachable(f"{self._address}: {path} ended without an answer")
        return received

    def close(self) -> None:
        """Close the connection; open calls, and later ones, raise Unreachable."""
        self._closed = True
        self._channel.close()

    @contextmanager
    def _left_closed(self) -> Iterator[None]:
        """Close the channel again: a call that was connecting during `close` has reopened it."""
        try:
            yield
        finally:
            if self._closed:
                self._channel.close()

    @contextmanager
    def _translated(self, deadline_s: float) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._refusal(error, deadline_s) from error

    def _refusal(self, error: Exception, deadline_s: float) -> Exception:
        match error:
            case GRPCError(status=Status.UNAVAILABLE | Status.CANCELLED):
                return Unreachable(f"{self._address}: {error.message}")
            case GRPCError():
                return self._refused(error)
            case TimeoutError():
                return Unreachable(f"{self._address} did not answer within {deadline_s:.2g} s")
            # These before OSError, their superclass.
            case ssl.SSLError() if not is_lost(error):
                return Unreachable(f"{self._address}: {failed_check(error)}")
            # The process is gone, or a firewall rejects calls. Other failures tell less.
            case ConnectionRefusedError():
                return Unreachable(f"nothing listens at {self._address}", absent=True)
            case OSError() | StreamTerminatedError() | ProtocolError() | H2ProtocolError():
                cause = self._channel.refused or str(error) or LOST_IN_HANDSHAKE
                return Unreachable(f"{self._address}: {cause}")
            case _:
                return error

    def _refused(self, error: GRPCError) -> Refused:
        try:
            details = read_status_details(error.details or b"")
        except Malformed:
            details = None
        if details is None:
            return Refused(StreamingCode.UNKNOWN, f"{self._address}: {error.message}")
        if details.leader is not None:
            return DoesNotLead(f"{self._address}: {details.cause}", details.leader)
        try:
            code = StreamingCode(details.code)
        except ValueError:
            code = StreamingCode.UNKNOWN
        return Refused(code, details.cause)
