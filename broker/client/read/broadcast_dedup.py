"""Drops repeated copies of a broadcast from a reader of batches.

A coordinator that died between appending a copy and recording that it did appends it again after
its restart. `Decoder` drops the repeats from readers of single messages. Only bodies of stored
messages that mention a broadcast are looked into: the search for the property's name costs less
than decoding.
"""

from collections.abc import Mapping

from broker.client.batch import MessageBatch
from broker.core.log.seen_broadcasts import SeenBroadcasts
from broker.model.ids import BroadcastId, TimeTick
from schemas.batches import STORED, ReadBatch
from schemas.properties.broadcast_header import read_broadcast_id

BROADCAST = "_bh"
MENTION = BROADCAST.encode()


class BroadcastDedup:
    """For one reader of one pchannel, over all its streams."""

    def __init__(self) -> None:
        self._seen = SeenBroadcasts()

    def without_repeats(self, batch: ReadBatch) -> list[ReadBatch]:
        """The batch without repeated copies: in pieces, where one was in its middle.

        Raises ProtocolBroken on malformed bytes.
        """
        if batch.form != STORED or MENTION not in batch.body:
            return [batch]
        messages = MessageBatch(batch, None, TimeTick(0))
        pieces: list[ReadBatch] = []
        first = batch.first
        for at, (tags, id) in enumerate(zip(messages.tags, messages.ids, strict=True), batch.first):
            if BROADCAST in tags and not self._is_first(batch.vchannel, tags, id):
                if at > first:
                    pieces.append(batch._replace(first=first, end=at))
                first = at + 1
        if first < batch.end:
            pieces.append(batch._replace(first=first))
        return pieces

    def _is_first(self, vchannel: str, tags: Mapping[str, str], id: int) -> bool:
        broadcast_id = BroadcastId(read_broadcast_id(tags[BROADCAST]))
        return self._seen.is_first(vchannel or tags.get("_vc", ""), broadcast_id, id)
