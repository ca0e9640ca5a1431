"""Messages that no member could process, and what their copies say of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import Final

from broker.model.groups.consumer_group import GroupKey
from broker.model.ids import MessageId, TimeTick

CAUSE: Final = "dead.cause"
DELIVERIES: Final = "dead.deliveries"
GROUP: Final = "dead.group"
ORIGIN: Final = "dead.origin"
VCHANNEL: Final = "dead.vchannel"
ID: Final = "dead.id"
TICK: Final = "dead.tick"
TYPE: Final = "dead.type"
MARKS: Final = frozenset({CAUSE, DELIVERIES, GROUP, ORIGIN, VCHANNEL, ID, TICK, TYPE})
"""The properties that a copy has beside those of the message."""
NO_MARKS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Letter:
    """A message as a program sees it. `properties`: the program's own.

    `is_copy`: the broker has appended it to the dead letters, and marked it; no program can say so.
    """

    id: MessageId
    tick: TimeTick
    type: int
    payload: bytes
    key: bytes | None
    properties: Mapping[str, str]
    is_copy: bool = False

    @property
    def size(self) -> int:
        texts = sum([len(name) + len(value) for name, value in self.properties.items()])
        return len(self.payload) + len(self.key or b"") + texts


@dataclass(frozen=True, slots=True)
class Death:
    """Why messages of a group went to the dead letters. `origin`: the target of the group."""

    key: GroupKey
    origin: str
    cause: str
    deliveries: int

    def marks(self, letter: Letter) -> dict[str, str]:
        """What the copy of this message says of it."""
        return {
            CAUSE: self.cause,
            DELIVERIES: str(self.deliveries),
            GROUP: self.key.name,
            ORIGIN: self.origin,
            VCHANNEL: self.key.vchannel,
            ID: str(letter.id),
            TICK: str(letter.tick),
            TYPE: str(letter.type),
        }


def copied_id(letter: Letter, key: GroupKey) -> MessageId | None:
    """The id of the message that this one is a copy of, if a group of this key has copied it."""
    properties = letter.properties
    of = GroupKey(properties.get(VCHANNEL, ""), properties.get(GROUP, ""))
    if not letter.is_copy or of != key:
        return None
    text = properties.get(ID, "")
    return MessageId(int(text)) if text.isascii() and text.isdigit() and len(text) < 20 else None


def content(letter: Letter, marks: Mapping[str, str] = NO_MARKS) -> bytes:
    """A digest of what a program sees of a message that has these properties, too."""
    key = (b"", b"") if letter.key is None else (b"key", letter.key)
    texts = sorted({**letter.properties, **marks}.items())
    parts = [letter.payload, *key, *[it.encode() for pair in texts for it in pair]]
    found = sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big"))
        found.update(part)
    return found.digest()
