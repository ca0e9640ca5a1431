"""Recovery snapshots in the metadata store: one record for each object, and a head written last.

Every write expects the head as this claim wrote it. Whoever claims the pchannel later writes the
head first, which fences this claim. Why objects may be newer than the checkpoint after a crash, but
never older: each carries its own tick, so replaying the log from the checkpoint skips what it has
seen already.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from broker.core.master.segment_records import records_of
from broker.meta.compaction_records import (
    compacted_keys,
    decode_stored_compacted,
    encode_stored_compacted,
)
from broker.meta.large_values import LargeValues
from broker.meta.recovery_records import (
    Head,
    SnapshotKeys,
    Unreadable,
    decode_finished,
    decode_group,
    decode_head,
    decode_producers,
    decode_segment,
    decode_stored_purge,
    decode_vchannel,
    encode_finished,
    encode_group,
    encode_head,
    encode_producers,
    encode_segment,
    encode_stored_purge,
    encode_vchannel,
)
from broker.model.ids import PChannelName, Term, TimeTick
from broker.model.snapshot import Snapshot, SnapshotChange
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import Conflict, MetaEntry, MetaStore
from broker.ports.meta_writes import SPLIT_KEYS, all_entries, split_write
from broker.ports.recovery_store import Superseded

CLAIM_ATTEMPTS_MAX = 32
T = TypeVar("T")


class StoredRecovery:
    """Implements `RecoveryStore` (`broker/ports/recovery_store.py`)."""

    def __init__(self, store: MetaStore, *, keys_a_write_max: int = SPLIT_KEYS) -> None:
        self._store = store
        assert keys_a_write_max > 1, "the head, and something else"
        self._keys_a_write_max = keys_a_write_max

    async def claim(self, channel: PChannelName, term: Term) -> "StoredClaim":
        """See the port. Writes the head first: from then on no older claim can write."""
        keys = SnapshotKeys(channel)

        async def attempt() -> StoredClaim:
            entry = await self._store.get(keys.head)
            before, damage = _head(keys, entry)
            if before.term > term:
                raise Superseded(channel, term, before.term)
            head = replace(before, term=term, claims=before.claims + 1)
            expect = {keys.head: 0 if entry is None else entry.revision}
            revision = await self._store.write({keys.head: encode_head(head)}, expect=expect)
            # Listed after the head is ours: no older claim can change these any more.
            stored = [item async for item in all_entries(self._store, keys.prefix)]
            found = _Found(keys, stored, head, damage)
            claim = StoredClaim(self._store, keys, head, found, self._keys_a_write_max)
            claim.revision = revision
            return claim

        return await retry_conflicts(keys.head, attempt, attempts_max=CLAIM_ATTEMPTS_MAX)


class StoredClaim:
    """Implements the claim of the port. `revision`: of the head, as this claim wrote it last."""

    def __init__(
        self,
        store: MetaStore,
        keys: SnapshotKeys,
        head: Head,
        found: "_Found",
        keys_a_write_max: int,
    ) -> None:
        self.snapshot = found.snapshot
        self.damage = tuple(found.damage)
        self.revision = 0
        self._unreadable = found.unreadable
        self._values = found.values
        self._store = store
        self._keys = keys
        self._head = head
        self._keys_a_write_max = keys_a_write_max

    async def save(self, change: SnapshotChange) -> None:
        """See the port."""
        head = replace(self._head, checkpoint=change.checkpoint, listed=True)
        values = _values(self._keys, change)
        gone = _deletes(self._keys, change)
        # Damaged records go with the first save: a replay of the log has restored what they had.
        deletes = [key for key in self._unreadable if key not in values] + gone
        puts, stale = self._values.replaced(values, gone)
        deletes += stale
        listed, unlisted = records_of(self._with_unlisted(change))
        # First: a replay counts as seen what an object of the snapshot includes, and would not list
        # it again after a crash in between.
        puts = listed | puts
        deletes += unlisted
        try:
            self.revision = await self._write_all(puts, deletes, encode_head(head))
        except Conflict:
            self.revision = await self._written_before(encode_head(head))
        self._head = head
        self._unreadable = []
        self._values.saved(values, gone)

    def _with_unlisted(self, change: SnapshotChange) -> SnapshotChange:
        """The change, and once what a snapshot of an older release has that the master lacks."""
        if self._head.listed:
            return change
        known = self.snapshot
        segments = {each.id: each for each in (*known.segments, *change.segments)}
        vchannels = {each.name: each for each in (*known.vchannels, *change.vchannels)}
        for name in change.gone_vchannels:
            vchannels.pop(name, None)
        return replace(
            change, segments=tuple(segments.values()), vchannels=tuple(vchannels.values())
        )

    async def _write_all(
        self, puts: Mapping[str, bytes], deletes: Sequence[str], head: bytes
    ) -> int:
        # Each partial write expects our head, so a newer claim stops it. The head comes last: a
        # crash in between leaves the old checkpoint, with objects that may be newer.
        expect = {self._keys.head: self.revision}
        size = self._keys_a_write_max - 1  # the last write has the head, too
        writes = list(split_write(puts, deletes, keys_max=size)) or [({}, [])]
        for some, gone in writes[:-1]:
            await self._store.write(some, deletes=gone, expect=expect)
        some, gone = writes[-1]
        return await self._store.write({**some, self._keys.head: head}, deletes=gone, expect=expect)

    async def _written_before(self, head: bytes) -> int:
        """The head has changed: by our own earlier write (its answer was lost) or a newer claim."""
        entry = await self._store.get(self._keys.head)
        if entry is None or entry.value != head:
            newest, _ = _head(self._keys, entry)
            raise Superseded(self._keys.channel, self._head.term, newest.term)
        return entry.revision


class _Found:
    """The stored parts of one pchannel, and those that cannot be read."""

    def __init__(
        self, keys: SnapshotKeys, stored: Sequence[tuple[str, MetaEntry]], head: Head, damage: str
    ) -> None:
        self.damage = [damage] if damage else []
        self.unreadable: list[str] = []
        self.values = LargeValues(keys.parts)
        values = self.values.joined({key: entry.value for key, entry in stored})
        nothing = ((), TimeTick(0))
        finished = self._read(values, keys.finished, decode_finished) or [nothing]
        producers = self._read(values, keys.producers, decode_producers) or [nothing]
        vchannels = self._read(values, keys.vchannels, decode_vchannel)
        segments = self._read(values, keys.segments, decode_segment)
        groups = self._read(values, keys.groups, decode_group)
        purges = self._read(values, keys.purges, decode_stored_purge)
        compacted = self._read(values, compacted_keys(keys), decode_stored_compacted)
        self.snapshot = Snapshot(
            # With a part missing only a replay of the whole log gives a complete state.
            checkpoint=None if self.damage else head.checkpoint,
            vchannels=tuple(vchannels),
            segments=tuple(segments),
            finished=finished[0][0],
            finished_tick=finished[0][1],
            producers=producers[0][0],
            producers_tick=producers[0][1],
            groups=tuple(groups),
            purges=tuple(purges),
            compacted=tuple(compacted),
        )

    def _read(
        self, values: Mapping[str, bytes], prefix: str, decode: Callable[[bytes], T]
    ) -> list[T]:
        found: list[T] = []
        for key in [key for key in values if key.startswith(prefix)]:
            try:
                found.append(decode(values[key]))
            except Unreadable as error:
                self.damage.append(f"{key}: {error}")
                self.unreadable.append(key)
        return found


def _head(keys: SnapshotKeys, entry: MetaEntry | None) -> tuple[Head, str]:
    """The head, and what is wrong with it; an unreadable one counts as missing."""
    nothing = Head(Term(0), 0, None)
    if entry is None:
        return nothing, ""
    try:
        return decode_head(entry.value), ""
    except Unreadable as error:
        return nothing, f"{keys.head}: {error}"


def _values(keys: SnapshotKeys, change: SnapshotChange) -> dict[str, bytes]:
    puts = {keys.vchannels + each.name: encode_vchannel(each) for each in change.vchannels}
    puts |= {f"{keys.segments}{each.id}": encode_segment(each) for each in change.segments}
    puts |= {keys.group(each.key): encode_group(each) for each in change.groups}
    puts |= {keys.purges + it.vchannel: encode_stored_purge(it) for it in change.purges}
    puts |= {
        compacted_keys(keys) + it.vchannel: encode_stored_compacted(it) for it in change.compacted
    }
    if change.finished is not None:
        puts[keys.finished] = encode_finished(change.finished, change.checkpoint.tick)
    if change.producers is not None:
        puts[keys.producers] = encode_producers(change.producers, change.checkpoint.tick)
    return puts


def _deletes(keys: SnapshotKeys, change: SnapshotChange) -> list[str]:
    vchannels = [keys.vchannels + name for name in change.gone_vchannels]
    groups = [keys.group(each) for each in change.gone_groups]
    purges = [keys.purges + name for name in change.gone_purges]
    purges += [compacted_keys(keys) + name for name in change.gone_compacted]
    return vchannels + groups + purges + [f"{keys.segments}{id}" for id in change.gone_segments]
