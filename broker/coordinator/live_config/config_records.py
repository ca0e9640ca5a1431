"""The records of the configuration: one for each entry, its value as plain text.

A change that does not fit one write is recorded first, in parts, as a load; the record of its
commit makes it whole. Until that record nothing of it happened; after it the entries are written
from the parts, by this coordinator or by the next one, before anybody reads them. Their records
have later revisions than the commit's, which is that of the change: a record of the load says so.
"""

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from broker.coordinator.json_records import decode_fields, encode_fields
from broker.coordinator.records import decode_number, encode_number
from broker.core.live_config.config_keys import is_setting
from broker.model.master.live_config import ConfigEntry, StoredSettings
from broker.ports.meta import MetaStore, WriteUnconfirmed
from broker.ports.meta_writes import PART_BYTES, all_entries, split_write

CONFIG_PREFIX: Final = "config/"
LOAD_PREFIX: Final = "config_load/"
COMMIT_KEY: Final = "config_load_commit"
LOADED_PREFIX: Final = "config_loaded/"
"""`config_loaded/<revision of the commit>`: later entries, up to this record, are of the load."""
REVISION_KEY: Final = "config_revision"
SETTINGS_KEY: Final = "config_settings_revision"
"""Written with every change of a setting: the revision of its entry is that of the settings."""


@dataclass(slots=True)
class Configuration:
    """What is stored. `revision` of any entry, `settings_revision` of the settings; 0: none."""

    entries: dict[str, ConfigEntry]
    revision: int = 0
    settings_revision: int = 0

    def of_settings(self) -> list[ConfigEntry]:
        """The entries of settings, by name."""
        return [it for key, it in sorted(self.entries.items()) if is_setting(key)]

    def settings(self) -> StoredSettings:
        """What every process applies."""
        values = {it.key: it.value for it in self.of_settings()}
        return StoredSettings(self.settings_revision, values)


class ConfigRecords:
    """For one writer, the leader. Calls raise MetaError; see each for what it has done then."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._unfinished = False

    @property
    def unfinished(self) -> bool:
        """Whether a load is not written yet, or an answer was lost: `read` before `write`."""
        return self._unfinished

    async def read(self) -> Configuration:
        """Everything, after finishing or forgetting what an earlier write or leader left.

        May be called again after MetaError.
        """
        await self._finish()
        found = Configuration({})
        loads = [
            (int(key.removeprefix(LOADED_PREFIX)), entry.revision)
            async for key, entry in all_entries(self._store, LOADED_PREFIX)
        ]
        used = set()
        async for key, entry in all_entries(self._store, CONFIG_PREFIX):
            name = key.removeprefix(CONFIG_PREFIX)
            value = entry.value.decode(errors="replace")
            revision = _of_change(entry.revision, loads)
            used.add(revision)
            found.entries[name] = ConfigEntry(name, value, revision)
        gone = [_loaded_key(commit) for commit, _ in loads if commit not in used]
        for _, some in split_write({}, gone):
            await self._store.write({}, deletes=some)
        found.revision = await self._revision(REVISION_KEY)
        found.settings_revision = await self._revision(SETTINGS_KEY)
        # Only now: the caller of a read that fails still holds the configuration from before.
        self._unfinished = False
        return found

    async def write(
        self, puts: Mapping[str, str], deletes: Sequence[str], *, settings: bool
    ) -> int:
        """Write all or nothing; the revision of the change, durable when this returns.

        MetaError: nothing happened, unless it is WriteUnconfirmed. After that one, and after a
        large change, `unfinished` is true.
        """
        assert not self._unfinished, "the rest of the load would be written over this change"
        try:
            return await self._write(puts, deletes, settings=settings)
        except WriteUnconfirmed:
            self._unfinished = True
            raise

    async def _write(
        self, puts: Mapping[str, str], deletes: Sequence[str], *, settings: bool
    ) -> int:
        values = {CONFIG_PREFIX + key: value.encode() for key, value in puts.items()}
        gone = [CONFIG_PREFIX + key for key in deletes]
        marks = _marks(settings=settings)
        parts = list(split_write(values, gone))
        if len(parts) == 1:
            some, without = parts[0]
            return await self._store.write({**some, **marks}, deletes=without)
        for number, part in enumerate(_load_parts(puts, deletes)):
            await self._store.write({_part_key(number): part})
            count = number + 1
        # The commit. The marks are written here: from now on this revision is read.
        commit = {COMMIT_KEY: encode_number(count)}
        revision = await self._store.write({**commit, **marks})
        self._unfinished = True
        return revision

    async def _finish(self) -> None:
        """Write the entries of a committed load; forget the parts of one that is not committed.

        May be called again after MetaError, and repeats what was done.
        """
        commit = await self._store.get(COMMIT_KEY)
        if commit is not None:
            for number in range(decode_number(COMMIT_KEY, commit.value)):
                await self._apply(_part_key(number))
            await self._store.write({_loaded_key(commit.revision): b"1"}, deletes=[COMMIT_KEY])
        left = [key async for key, _ in all_entries(self._store, LOAD_PREFIX, page=10)]
        for _, some in split_write({}, left):
            await self._store.write({}, deletes=some)

    async def _apply(self, key: str) -> None:
        part = await self._store.get(key)
        assert part is not None, key  # written before the commit, deleted after it
        puts, deletes = decode_fields(key, part.value, _decoded_part)
        values = {CONFIG_PREFIX + name: value.encode() for name, value in puts.items()}
        for some, gone in split_write(values, [CONFIG_PREFIX + name for name in deletes]):
            await self._store.write(some, deletes=gone)

    async def _revision(self, key: str) -> int:
        entry = await self._store.get(key)
        return 0 if entry is None else entry.revision


def _marks(*, settings: bool) -> dict[str, bytes]:
    marked = {REVISION_KEY: b"1"}
    return {**marked, SETTINGS_KEY: b"1"} if settings else marked


def _loaded_key(commit: int) -> str:
    return f"{LOADED_PREFIX}{commit:020d}"


def _of_change(revision: int, loads: Sequence[tuple[int, int]]) -> int:
    """The revision of the change that wrote a record of this revision."""
    # Nothing else is written to the configuration before a load is finished.
    at = bisect_left(loads, (revision, 0)) - 1
    return loads[at][0] if at >= 0 and revision < loads[at][1] else revision


def _part_key(number: int) -> str:
    return f"{LOAD_PREFIX}{number:06d}"


def _load_parts(puts: Mapping[str, str], deletes: Sequence[str]) -> list[bytes]:
    """The change in records of about PART_BYTES each."""
    parts: list[bytes] = []
    some: dict[str, str] = {}
    gone: list[str] = []
    size = 0
    for key, value in [*puts.items(), *[(key, None) for key in deletes]]:
        if value is None:
            gone.append(key)
        else:
            some[key] = value
        # As it is written: in JSON a value may be six times as long.
        size += len(json.dumps([key, value]))
        if size >= PART_BYTES:
            parts.append(encode_fields({"puts": some, "deletes": gone}))
            some, gone, size = {}, [], 0
    if some or gone:
        parts.append(encode_fields({"puts": some, "deletes": gone}))
    return parts


def _decoded_part(fields: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    return dict(fields["puts"]), list(fields["deletes"])
