"""Limits on what one caller of the edge may cost."""

from dataclasses import dataclass

from broker.transport import ListenerLimits

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """Bytes and seconds. The settings of the same names say what each protects."""

    message_bytes_max: int = 8 * MIB
    frame_bytes_max: int = 16 * MIB
    passed_over_bytes_max: int = 256 * MIB
    """A producer's frame up to this size, the largest that Milvus's clients send, is refused alone
    and the stream continues. If the stream ended, the client would send the frame, and all its
    other messages, again and again."""
    produce_inflight_bytes_max: int = 32 * MIB
    consume_credit_bytes: int = MIB
    idle_peer_s: float = 15.0
    append_deadline_s: float = 30.0
    """After this an append is answered UNKNOWN; the Appender may still carry it out."""
    flush_s: float = 30.0
    """How long a caller that has half-closed may take to read its remaining answers."""
    listener: ListenerLimits = ListenerLimits()
