"""How far the vchannels of one pchannel are compacted, as its log says.

A record of kind COMPACTION stands before a pass removes anything, and another behind its end. As a
purge it is shown to no reader, folded by recovery and saved in snapshots. Its body is JSON.
"""

import json
from collections.abc import Iterable, Mapping

from broker.model.ids import TimeTick
from broker.model.record import Record
from broker.model.retention.compaction import Compacted
from broker.unreadable import UNREADABLE


class UnreadableCompaction(Exception):
    """The body is damaged, or a later release wrote it."""


def encode_compacted(it: Compacted) -> bytes:
    """The body of the record, whose vchannel and tick are those of `it`."""
    fields = {
        "upto": it.upto,
        "clean": it.clean,
        "horizon": it.horizon,
        "horizon_ms": it.horizon_ms,
        "tombstones": it.tombstones,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_compacted(vchannel: str, body: bytes, tick: TimeTick) -> Compacted:
    """What the body of a record says. Raises UnreadableCompaction."""
    try:
        fields = json.loads(body)
        return Compacted(
            vchannel,
            TimeTick(int(fields["upto"])),
            TimeTick(int(fields["clean"])),
            TimeTick(int(fields["horizon"])),
            int(fields["horizon_ms"]),
            int(fields["tombstones"]),
            tick,
        )
    except UNREADABLE as error:
        raise UnreadableCompaction(f"a compaction is damaged: {error!r}") from error


class CompactionTable:
    """`changed`, `gone`: the vchannels since they were last cleared. `version` grows with each."""

    def __init__(self, saved: Iterable[Compacted] = ()) -> None:
        self._states = {it.vchannel: it for it in saved}
        self._uptos = {it.vchannel: it.upto for it in self._states.values()}
        self.changed: set[str] = set()
        self.gone: set[str] = set()
        self.version = 0

    def observe(self, record: Record) -> list[str]:
        """Apply a record of kind COMPACTION; returns what cannot be read, as texts."""
        wrong: list[str] = []
        for message in record.messages():
            try:
                self.apply(decode_compacted(record.vchannel, message.body, message.tick))
            except UnreadableCompaction as error:
                wrong.append(f"message {message.id}: {error}")
        return wrong

    def apply(self, it: Compacted) -> None:
        """Apply a state that is durable; an older one than the known does nothing."""
        known = self._states.get(it.vchannel)
        if known is not None and known.tick >= it.tick:
            return
        self._states[it.vchannel] = it
        self._uptos[it.vchannel] = max(it.upto, self._uptos.get(it.vchannel, TimeTick(0)))
        self.changed.add(it.vchannel)
        self.gone.discard(it.vchannel)
        self.version += 1

    def forget_removed(self, removed_tick: TimeTick) -> None:
        """Forget what says nothing any more: retention has removed the log up to this tick.

        Not that of a dropped collection before: readers of the pchannel may be given what is left.
        """
        for name in [it for it, upto in self._uptos.items() if upto <= removed_tick]:
            del self._states[name], self._uptos[name]
            self.changed.discard(name)
            self.gone.add(name)

    def of(self, vchannel: str) -> Compacted:
        """The state of a vchannel; of one that was never compacted, too."""
        return self._states.get(vchannel) or Compacted(vchannel)

    @property
    def uptos(self) -> Mapping[str, TimeTick]:
        """Up to which tick messages of a vchannel may be missing; always up to date."""
        return self._uptos

    def all(self) -> tuple[Compacted, ...]:
        """One for each compacted vchannel."""
        return tuple(self._states.values())

    def changes(self) -> tuple[Compacted, ...]:
        """Those that have changed."""
        return tuple([self._states[it] for it in self.changed])

    def clear_changes(self) -> None:
        """They are saved."""
        self.changed.clear()
        self.gone.clear()
