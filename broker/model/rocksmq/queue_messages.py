"""Messages of the embedded queue, and what it shows of channels and groups."""

from collections.abc import Mapping
from dataclasses import dataclass

from broker.value import value


@value
class ProducerMessage:
    """A message to be produced."""

    payload: bytes


@value
class ConsumerMessage:
    """A message that was consumed. Ids grow along a channel and are never used again."""

    msg_id: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class QueueChannelView:
    """What a channel holds now."""

    channel: str
    begin_id: int
    """The first id that retention has left; 0 before the first message."""
    end_id: int
    """One past the last id; 0 before the first message."""
    open_bytes: int
    """Payload bytes of the page that is being filled."""
    pages: int
    page_bytes: int
    """Payload bytes of the pages that are full."""
    positions: Mapping[str, int]
    """For each group the next id that it reads; -1: from the first message."""
