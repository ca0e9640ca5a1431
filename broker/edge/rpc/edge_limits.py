"""What a caller of the edge may cost. Owns numbers only."""

from dataclasses import dataclass

from broker.transport import ListenerLimits

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """Bytes and seconds; the settings of the same names say what each protects."""

    message_bytes_max: int = 8 * MIB
    frame_bytes_max: int = 16 * MIB
    passed_over_bytes_max: int = 256 * MIB
    """A producer's frame of up to this size, the most that Milvus's clients send, is refused alone:
    a client whose stream ended would send it again and again, with all else it has."""
    produce_inflight_bytes_max: int = 32 * MIB
    consume_credit_bytes: int = MIB
    idle_peer_s: float = 15.0
    append_deadline_s: float = 30.0
    """After this an append is answered as unknown; the Appender may still carry it out."""
    flush_s: float = 30.0
    """How long a caller that has finished may take to read what it is owed."""
    listener: ListenerLimits = ListenerLimits()
