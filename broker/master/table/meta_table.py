"""Applies changes to the meta table: those that wait together share one write."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from actors import Actor, Envelope
from broker.master.table.apply_change import ChangeWriter
from broker.master.table.change_keys import keys_read
from broker.master.table.leftovers import remove_leftovers, remove_more_indexes, write_ahead
from broker.master.table.messages import (
    CLASHES_AT_ONCE,
    ApplyChange,
    ClearClashes,
    MetaTableMessage,
)
from broker.master.table.table_records import CLASH_PREFIX
from broker.master.table.write_group import WriteGroup
from broker.model.failure import Refused, invalid_argument
from broker.model.master.table_change import AddCollection, RemoveCollection, RemoveIndexes
from broker.ports.callbacks import EndRecord
from broker.ports.meta import Conflict, MetaError, MetaStore

READ_AHEAD: Final = 32
"""Changes whose records are read at once: about as many as share a write."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Waiting:
    """`ended`: the record that ends its broadcast is written with its change."""

    envelope: Envelope[MetaTableMessage]
    ended: bool = False


class MetaTable(Actor[MetaTableMessage]):
    """The only writer of the table. Nothing is cached: the store is always asked."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._applied = self._writes = 0

    async def receive(self, batch: Sequence[Envelope[MetaTableMessage]]) -> None:
        group = WriteGroup(self._store)
        waiting: list[_Waiting] = []
        for at, envelope in enumerate(batch):
            message = envelope.message
            if group.full or isinstance(message, ClearClashes):
                await self._flush(group, waiting)
                group, waiting = WriteGroup(self._store), []
            if isinstance(message, ClearClashes):
                await self._clear(envelope, message.ids)
                continue
            waiting.append(_Waiting(envelope))
            try:
                if len(waiting) == 1:
                    await _read_ahead(group, batch[at : at + READ_AHEAD])
                overtaken = await _overtaken(group, message.end)
                if overtaken is None:
                    waiting[-1].ended = await self._apply(group, message)
                else:
                    waiting.pop().envelope.fail(overtaken)
            except Conflict:
                raise  # another writer: the next incarnation reads anew, and the caller asks again
            except (MetaError, Refused) as error:
                # A part of the change may lie in the group: none of it is written.
                for each in waiting:
                    each.envelope.fail(error)
                group, waiting = WriteGroup(self._store), []
        await self._flush(group, waiting)

    def statistics(self) -> Mapping[str, int | float | str]:
        return {"applied": self._applied, "writes": self._writes}

    async def _apply(self, group: WriteGroup, message: ApplyChange) -> bool:
        """Whether the end of its broadcast is written with it."""
        change, end = message.change, message.end
        if isinstance(change, AddCollection):
            await write_ahead(self._store, change)
        await ChangeWriter(group).apply(change, message.tick)
        if end is None:
            return False
        # More follows the write of a removal: its broadcast has not ended before.
        assert not isinstance(change, RemoveCollection | RemoveIndexes)
        await group.write({end.key: end.value})
        return True

    async def _flush(self, group: WriteGroup, waiting: Sequence[_Waiting]) -> None:
        try:
            revision = await group.flush()
            self._writes += 1
            for each in waiting:
                assert isinstance(each.envelope.message, ApplyChange)
                change = each.envelope.message.change
                if isinstance(change, RemoveCollection):
                    # After its own write, which hides them. A crash in between applies the change
                    # again, which comes here again.
                    await remove_leftovers(self._store, change.id)
                elif isinstance(change, RemoveIndexes):
                    await remove_more_indexes(self._store, change)
        except Conflict:
            raise
        except MetaError as error:
            for each in waiting:
                each.envelope.fail(error)
            return
        self._applied += len(waiting)
        for each in waiting:
            each.envelope.reply(revision if each.ended else None)

    async def _clear(self, envelope: Envelope[MetaTableMessage], ids: Sequence[str]) -> None:
        if not 1 <= len(ids) <= CLASHES_AT_ONCE:
            problem = f"a request clears {len(ids)} clashes; name 1 to {CLASHES_AT_ONCE}"
            envelope.fail(invalid_argument(problem))
            return
        keys = {id: CLASH_PREFIX + id for id in ids}
        try:
            unknown = [id for id, key in keys.items() if await self._store.get(key) is None]
            await self._store.write({}, deletes=[keys[id] for id in keys if id not in unknown])
        except MetaError as error:
            envelope.fail(error)
            return
        envelope.reply(tuple(unknown))


async def _read_ahead(group: WriteGroup, batch: Sequence[Envelope[MetaTableMessage]]) -> None:
    orders = [it.message for it in batch if isinstance(it.message, ApplyChange)]
    ends = [it.end.key for it in orders if it.end is not None]
    await group.read_ahead(ends + [key for it in orders for key in keys_read(it.change)])


async def _overtaken(group: WriteGroup, end: EndRecord | None) -> Conflict | None:
    """Why a broadcast cannot end so: another incarnation of its task has changed the record."""
    if end is None:
        return None
    entry = await group.get(end.key)
    revision = 0 if entry is None else entry.revision
    return None if revision == end.revision else Conflict(end.key, end.revision, revision)
