"""What the commit of a staged transaction says about its batch: the id, and how many commits.

With it, a reader of a log can tell when it has seen all of a batch.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from schemas.properties.keys import BATCH, BadProperty

VCHANNELS_MAX: Final = 64
"""For a batch on more vchannels, only the total number of transactions is stored."""
_NUMBER_BYTES: Final = 8
_RESERVED: Final = frozenset(",=")
_REMEMBERED_MAX: Final = 16 * 1024
"""Of a text; one with VCHANNELS_MAX names is shorter."""


@dataclass(frozen=True, slots=True)
class BatchMark:
    """`id` is the same in all commits of a batch, and of no other one; 63 bits.

    `counts`: its transactions on each vchannel; empty if only the `total` is known.
    """

    id: int
    total: int
    counts: Mapping[str, int]


def write_batch_mark(app: str, batch: int, vchannels: Sequence[str]) -> str:
    """The text of the property; `vchannels` has one name for each transaction."""
    digest = blake2b(f"{batch}:{app}".encode(), digest_size=_NUMBER_BYTES).digest()
    counts = Counter(vchannels)
    # A name with one of these could not be read back from the list.
    plain = all(_RESERVED.isdisjoint(name) for name in counts)
    told = counts if len(counts) <= VCHANNELS_MAX and plain else {}
    named = ",".join(f"{name}={count}" for name, count in sorted(told.items()))
    # One bit less, so that the ID fits a signed 64-bit field.
    return f"{int.from_bytes(digest) >> 1}:{len(vchannels)}:{named}"


def read_batch_mark(text: str) -> BatchMark:
    """Raises BadProperty."""
    return (_remembered if len(text) <= _REMEMBERED_MAX else _read)(text)


def _read(text: str) -> BatchMark:
    number, _, rest = text.partition(":")
    total, _, named = rest.partition(":")
    try:
        pairs = [it.rpartition("=") for it in named.split(",") if it]
        return BatchMark(int(number), int(total), {name: int(count) for name, _, count in pairs})
    except ValueError as error:
        raise BadProperty(BATCH.key, text, "not of the form <id>:<total>:<names>") from error


_remembered = lru_cache(maxsize=64)(_read)
