"""Durability levels of appends, as words for programs and as numbers of the protocol."""

from typing import Final, Literal, get_args

from broker.client.errors import InvalidArgument, ProtocolBroken
from broker.model.batch import Durability as Level

Durability = Literal["fsync", "os", "memory"]
"""When an append returns. `"fsync"`: when it is synced to disk, and survives power cuts. `"os"`:
when the operating system has it; it survives `kill -9` of the server, but no power cut. `"memory"`:
when it has its id and tick; it survives nothing.

Whatever the level, the message is synced with its group a moment later, and read only then.
"""

_WORDS: Final[dict[int, Durability]] = {
    Level.FSYNC: "fsync",
    Level.OS: "os",
    Level.MEMORY: "memory",
}
_LEVELS: Final[dict[str, int]] = {word: int(level) for level, word in _WORDS.items()}


def level_of(word: str) -> int:
    """The number of a level. Raises InvalidArgument for an unknown word."""
    level = _LEVELS.get(word)
    if level is None:
        known = ", ".join(get_args(Durability))
        raise InvalidArgument(f"durability {word!r} is not known; use one of {known}")
    return level


def word_of(level: int) -> Durability:
    """The word of a level. Raises ProtocolBroken for an unknown number."""
    word = _WORDS.get(level)
    if word is None:
        raise ProtocolBroken(f"an append was answered at durability {level}, which is not known")
    return word
