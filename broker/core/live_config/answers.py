"""What a request with prefixes and keys is answered: prefixes first, each key once."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from broker.core.live_config.config_keys import config_key, config_prefix, shown_key
from broker.model.master.live_config import (
    KEYS_MAX,
    PREFIXES_MAX,
    TOTAL_BYTES_MAX,
    ConfigEntry,
)


class NoSuchKey(KeyError):
    """A key without an entry; `key` is in its shown form."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"no entry has the key {self.key}; set it, or list what there is by the prefix /"


class TooMuch(ValueError):
    """The question has too many keys or prefixes, or its answer would be too large."""


class SortedEntries:
    """Entries by key, for exact keys and for prefixes."""

    def __init__(self, entries: Mapping[str, ConfigEntry]) -> None:
        self._entries = entries
        self._keys = sorted(entries)

    def get(self, keys: Sequence[str]) -> list[ConfigEntry]:
        """The entries of these keys, in this order, also repeated.

        Raises BadKey, NoSuchKey, TooMuch.
        """
        found = self._all(keys)
        # Without repetitions everything fits one answer.
        size = sum([len(it.key.encode()) + len(it.value.encode()) for it in found])
        if size > TOTAL_BYTES_MAX:
            raise TooMuch(
                f"the answer would have {size:,} bytes; the limit is {TOTAL_BYTES_MAX:,}: name each"
                " key once"
            )
        return found

    def by_prefix(self, prefix: str) -> list[ConfigEntry]:
        """The entries whose key begins with this text, by key. Raises BadKey."""
        begin = config_prefix(prefix)
        found = []
        for key in self._keys[bisect_left(self._keys, begin) :]:
            if not key.startswith(begin):
                break
            found.append(self._entries[key])
        return found

    def request(self, keys: Sequence[str], prefixes: Sequence[str]) -> list[ConfigEntry]:
        """Those of the prefixes, then those of the keys; each entry once. As `get` raises."""
        if len(prefixes) > PREFIXES_MAX:
            cause = f"the request has {len(prefixes):,} prefixes; send at most {PREFIXES_MAX}"
            raise TooMuch(cause)
        found: dict[str, ConfigEntry] = {}
        for prefix in prefixes:
            for entry in self.by_prefix(prefix):
                found.setdefault(entry.key, entry)
        for entry in self._all(keys):
            found.setdefault(entry.key, entry)
        return list(found.values())

    def _all(self, keys: Sequence[str]) -> list[ConfigEntry]:
        if len(keys) > KEYS_MAX:
            raise TooMuch(f"the request has {len(keys):,} keys; send at most {KEYS_MAX:,}")
        return [self._one(config_key(text)) for text in keys]

    def _one(self, key: str) -> ConfigEntry:
        entry = self._entries.get(key)
        if entry is None:
            raise NoSuchKey(shown_key(key))
        return entry
