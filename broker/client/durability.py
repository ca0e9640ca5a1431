"""How safe an append is when it is answered, in the words of programs.

Owns the words and their numbers in `tidemark.v1`. Next: broker/client/append/appends.py
"""

from typing import Final, Literal, get_args

from broker.client.errors import InvalidArgument, ProtocolBroken
from broker.model.batch import Durability as Level

Durability = Literal["fsync", "os", "memory"]
"""`"fsync"`: it survives power cuts. `"os"`: the operating system of its server has it, so it
survives the death of the server, not that of its machine. `"memory"`: it has its id and tick, and
survives nothing yet.

Whatever was asked for, it is synced with its group a moment later, and read only then.
"""

_WORDS: Final[dict[int, Durability]] = {
    Level.FSYNC: "fsync",
    Level.OS: "os",
    Level.MEMORY: "memory",
}
_LEVELS: Final[dict[str, int]] = {word: int(level) for level, word in _WORDS.items()}


def level_of(word: str) -> int:
    """The number of a level. Raises InvalidArgument for a word that is none."""
    level = _LEVELS.get(word)
    if level is None:
        known = ", ".join(get_args(Durability))
        raise InvalidArgument(f"durability {word!r} is not known; there are {known}")
    return level


def word_of(level: int) -> Durability:
    """Raises ProtocolBroken for a number that no server of ours sends."""
    word = _WORDS.get(level)
    if word is None:
        raise ProtocolBroken(f"an append was answered at durability {level}, which is not known")
    return word
