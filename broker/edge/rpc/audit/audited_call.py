"""What the audit has to know of one call while it is open."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from grpclib.const import Status

from broker.edge.rpc.peer_names import ConnectedPeer, peer_address, peer_subject
from broker.model.failure import Refusal, StreamingCode

VCHANNELS_MAX: Final = 64
"""Of one stream; further ones are not told apart."""
REFUSING: Final = frozenset(
    {
        StreamingCode.IGNORED_OPERATION,
        StreamingCode.INVALID_ARGUMENT,
        StreamingCode.UNRECOVERABLE,
        StreamingCode.REPLICATE_VIOLATION,
        StreamingCode.RATE_LIMIT_REJECTED,
        StreamingCode.PERMISSION_DENIED,
        StreamingCode.NOT_AUTHENTICATED,
    }
)
"""With these the server would not do it; with the others it could not, now or here."""

REFUSING_STATUSES: Final = frozenset(
    {
        Status.UNAUTHENTICATED,
        Status.PERMISSION_DENIED,
        Status.INVALID_ARGUMENT,
        Status.RESOURCE_EXHAUSTED,
        Status.UNIMPLEMENTED,
    }
)
LEFT: Final = "CANCELLED"

RefusedPart = Callable[["AuditedCall", Refusal, str], None]


class AuditedCall:
    """Filled by the middleware and by services; read by the AuditTrail when the call ends.

    `request`: what was decoded, of which only names are read. `user`: who calls, as authenticated.
    `denied`: set it where a refusal must not tell its caller that permission is what is missing.
    """

    __slots__ = (
        "_refused_part",
        "_subject",
        "began_s",
        "denied",
        "metadata",
        "method",
        "outcome",
        "peer",
        "peer_address",
        "refused",
        "request",
        "user",
        "vchannels",
    )

    def __init__(
        self,
        method: str,
        peer: ConnectedPeer | None,
        metadata: Mapping[str, str | bytes],
        began_s: float,
        refused_part: RefusedPart,
        *,
        with_vchannels: bool,
    ) -> None:
        self.method = method
        self.peer = peer
        self._subject: str | None = None
        # At once: a connection that has gone does not know it any more.
        self.peer_address = peer_address(peer)
        self.metadata = metadata
        self.began_s = began_s
        self.request: Any = None
        self.user = ""
        self.denied = False
        self.refused = False
        self.outcome = ""
        self.vchannels: set[str] | None = set() if with_vchannels else None
        self._refused_part = refused_part

    @property
    def subject(self) -> str:
        """Who its certificate names; "" without one."""
        if self._subject is None:
            self._subject = peer_subject(self.peer)
        return self._subject

    def ended(self, refusal: Refusal) -> None:
        """The call ends with this refusal."""
        self.outcome = refusal.code.name
        self.refused = refusal.code in REFUSING

    def ended_with(self, status: Status) -> None:
        """The call ends with a gRPC status alone."""
        self.outcome = status.name
        self.refused = status in REFUSING_STATUSES

    def left(self) -> None:
        """The call ends because its client left, or its deadline passed."""
        self.outcome = self.outcome or LEFT

    def wrote_to(self, vchannel: str) -> None:
        """A stream appends to this vchannel. Call it only while `vchannels` is not None."""
        assert self.vchannels is not None
        if len(self.vchannels) < VCHANNELS_MAX:
            self.vchannels.add(vchannel)

    def part_refused(self, refusal: Refusal, vchannel: str) -> None:
        """A message of the stream was refused, and the stream continues."""
        if refusal.code in REFUSING:
            self._refused_part(self, refusal, vchannel)
