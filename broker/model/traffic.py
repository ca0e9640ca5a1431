"""What went through one vchannel: messages appended and messages delivered."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VChannelTraffic:
    """Counts of one vchannel since its process began to count it.

    They only grow while `serial` stays the same. `messages` are durable ones, without those that
    the log writes about transactions and segments; bytes are as stored. `delivered` counts a
    message once for each consumer.
    """

    vchannel: str
    serial: int
    messages: int
    bytes: int
    delivered: int
    delivered_bytes: int
