"""The newest records of a pchannel in memory, its closed tick, and who waits for more.

The Appender writes; any number of readers on the same event loop read. Reads of evicted records
return None, so the reader falls back to the log.

Next: broker/node/scanner.py
"""

from collections.abc import Sequence

from actors import ActorError, Ref
from broker.core.log.named_vchannels import NamedVChannels
from broker.core.log.tail_window import TailWindow
from broker.model.ids import MessageId
from broker.model.message import GROUP_CHANGE, ClosedTick
from broker.model.record import Record
from broker.node.group_messages import MessagesCame
from broker.node.scanner_messages import ScannerMessage, Wake
from broker.node.state.node_limits import NodeLimits

WAKE = Wake()


class TailMemory:
    """The memory of all tails of a node; beyond the limit the largest ones evict."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.windows: list[TailWindow] = []

    @property
    def size_bytes(self) -> int:
        """Bytes held now, overheads included."""
        return sum([window.size_bytes for window in self.windows])

    def limit(self, bytes_max: int) -> None:
        """Change the limit, and evict what exceeds it."""
        self.bytes_max = bytes_max
        self.make_room()

    def make_room(self) -> None:
        """Evict until the limit holds, or every tail holds only its newest group."""
        excess = self.size_bytes - self.bytes_max
        left = self.windows
        while excess > 0 and left:
            largest = max(left, key=lambda window: window.size_bytes)
            before = largest.size_bytes
            if not largest.evict_oldest():
                # One large group must not keep the older records of all other tails in memory.
                left = [window for window in left if window is not largest]
            excess -= before - largest.size_bytes


class Tail:
    """See the module. `closed` is the newest closed tick; every record up to it is readable."""

    def __init__(
        self, next_id: MessageId, closed: ClosedTick, limits: NodeLimits, memory: TailMemory
    ) -> None:
        self.closed = closed
        self._limits = limits
        self._memory = memory
        self._window = TailWindow(next_id)
        self.named = NamedVChannels(next_id)
        # A dict as an ordered set: Scanners are woken in the order in which they came.
        self._waiting: dict[str, dict[Ref[ScannerMessage], None]] = {}
        self._listening: dict[str, dict[Ref[MessagesCame], None]] = {}
        memory.windows.append(self._window)

    @property
    def next_id(self) -> MessageId:
        """One past the newest readable message."""
        return self._window.next_id

    @property
    def waiting(self) -> int:
        """How many Scanners wait for more."""
        return sum(map(len, self._waiting.values()))

    @property
    def size_bytes(self) -> int:
        """Memory held, overheads included."""
        return self._window.size_bytes

    def read(self, from_id: MessageId) -> Sequence[Record] | None:
        """Records from the one that holds `from_id` on; empty at the end, None when evicted."""
        return self._window.read(from_id)

    def push(self, records: Sequence[Record], closed: ClosedTick, now_s: float) -> None:
        """Publish a durable group, and wake the Scanners it concerns."""
        self._window.push(records, now_s)
        self.closed = closed
        self._window.evict_old(now_s - self._limits.tail_age_s)
        self._window.evict_beyond(self._limits.tail_bytes_max)
        self._memory.make_room()
        names = {record.vchannel for record in records}
        self.named.add(names)
        if self._listening:
            self._tell_listeners(records)
        if "" in names:  # a record of the whole pchannel, such as a tick
            self.wake_all()
            return
        if not self._waiting:
            return
        for name in ("", *names):  # "": Scanners that read all vchannels
            self._wake(self._waiting.pop(name, {}))

    def close(self, closed: ClosedTick, now_s: float) -> None:
        """Close a tick that no record carries, and wake all Scanners."""
        self.closed = closed
        self._window.evict_old(now_s - self._limits.tail_age_s)
        self.wake_all()

    def wait(self, vchannel: str, scanner: Ref[ScannerMessage]) -> None:
        """Send `Wake` to the Scanner once, at the next change that may concern it."""
        self._waiting.setdefault(vchannel, {})[scanner] = None

    def listen(self, vchannel: str, listener: Ref[MessagesCame]) -> MessageId:
        """Tell `MessagesCame` once, when a record of the vchannel or of all comes.

        Not for ticks, and not for changes of groups. Returns `next_id`: nothing of interest lies
        between it and what the listener is told.
        """
        self._listening.setdefault(vchannel, {})[listener] = None
        return self.next_id

    def listens(self, vchannel: str, listener: Ref[MessagesCame]) -> bool:
        """Whether the listener was told nothing since it began to listen."""
        return listener in self._listening.get(vchannel, ())

    def listen_no_more(self, vchannel: str, listener: Ref[MessagesCame]) -> None:
        """Undo `listen`; no-op when it was told."""
        listeners = self._listening.get(vchannel, {})
        listeners.pop(listener, None)
        if not listeners:
            self._listening.pop(vchannel, None)

    def wake_all(self) -> None:
        """Wake all waiting Scanners."""
        waiting, self._waiting = self._waiting, {}
        for scanners in waiting.values():
            self._wake(scanners)

    def release(self) -> None:
        """Return the memory to the node's budget; this tail is no longer read."""
        if self._window in self._memory.windows:
            self._memory.windows.remove(self._window)

    def _tell_listeners(self, records: Sequence[Record]) -> None:
        came = MessagesCame(records[0].base_id)
        # Groups listen: what they write themselves is nothing to be read.
        names = {record.vchannel for record in records if record.kind != GROUP_CHANGE}
        for name in list(self._listening) if "" in names else names:
            for listener in self._listening.pop(name, ()):
                try:
                    listener.tell(came)
                except ActorError:  # it died; its next life listens by itself
                    continue

    def _wake(self, scanners: dict[Ref[ScannerMessage], None]) -> None:
        for scanner in scanners:
            try:
                scanner.tell(WAKE)
            except ActorError:  # it died; its consumer pulls from the next incarnation
                continue
