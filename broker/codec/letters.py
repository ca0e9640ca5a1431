"""Dead letters: messages taken out of what a reader gets, and their copies as a batch."""

from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from broker.codec.stored_messages import stored_of
from broker.model.batch import NO_KEYS, BatchKeys, BatchPart, NewBatch, OwnProperties
from broker.model.groups.dead_letter import Letter
from broker.model.ids import MessageId, TimeTick
from broker.model.message import ClosedTick, Delivered, DeliveredInTxn, MessageType
from broker.model.record import RecordSlice, RecordSliceInTxn
from schemas.batches import shared_properties
from schemas.encoding.varint import Malformed
from schemas.properties.keys import DEAD_COPY, ROW_KEY, TYPE, BadProperty
from schemas.scan import stored_properties
from schemas.stored import payload_of

_VERSION: Final = "1"
_COPY_ENTRIES: Final = DEAD_COPY.entry()
_COPY: Final = shared_properties(_COPY_ENTRIES.items())
"""The first property of a batch of copies. Programs cannot append a batch that begins with it."""


def letters_of(items: Iterable[Delivered | ClosedTick | RecordSlice]) -> list[Letter]:
    """Each message among the items, without begins and commits of transactions.

    A message that cannot be taken apart is its stored form, as a payload.
    """
    found: list[Letter] = []
    for item in items:
        if isinstance(item, RecordSlice):
            batch = item.record.batch
            is_copy = batch is not None and batch.properties.startswith(_COPY)
            for at, stored in enumerate(stored_of(item), item.first):
                in_txn = isinstance(item, RecordSliceInTxn)
                tick = item.first_tick if in_txn else TimeTick(item.record.base_tick + at)
                id = MessageId(item.record.base_id + at)
                found.append(replace(_letter(id, tick, stored), is_copy=is_copy))
        elif isinstance(item, DeliveredInTxn) and item.begins is None:
            found.append(_letter(item.id, item.tick, item.body))
    return found


def copies(vchannel: str, letters: Sequence[tuple[Letter, Mapping[str, str]]]) -> NewBatch:
    """The letters as rows on this vchannel, each with more properties.

    Its size is that of the messages without these: a message of the largest size has a copy, too.
    """
    stored = {
        **_COPY_ENTRIES,
        "_t": str(int(MessageType.INSERT)),
        "_v": _VERSION,
        "_h": "",
        "_vc": vchannel,
    }
    payloads = [letter.payload for letter, _ in letters]
    own = [shared_properties({**it.properties, **more}.items()) for it, more in letters]
    keys = NO_KEYS
    if any(it.key is not None for it, _ in letters):
        sizes = tuple(0 if it.key is None else len(it.key) + 1 for it, _ in letters)
        keys = BatchKeys(sizes, b"".join([it.key or b"" for it, _ in letters]))
    return NewBatch(
        vchannel,
        MessageType.INSERT,
        b"".join(payloads),
        sum([it.size for it, _ in letters]),
        sizes=tuple(map(len, payloads)),
        part=BatchPart(
            shared_properties(stored.items()),
            keys=keys,
            own=OwnProperties(tuple(map(len, own)), b"".join(own)),
        ),
    )


def _letter(id: MessageId, tick: TimeTick, stored: bytes) -> Letter:
    try:
        properties = stored_properties(stored)
        key_text = properties.pop(ROW_KEY.key, None)
        own = {name: value for name, value in properties.items() if name[:1] != "_"}
        key = None if key_text is None else b64decode(key_text)
        kind = TYPE.read(properties) or MessageType.INSERT
        return Letter(id, tick, kind, payload_of(stored), key, own)
    except (Malformed, BadProperty, ValueError):
        return Letter(id, tick, MessageType.INSERT, stored, None, {})
