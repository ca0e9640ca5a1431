"""Which node serves which pchannel, as far as the client knows, and what it has reported as wrong.

Pure. A newer table replaces an older one completely; a table older than that is ignored.
"""

from dataclasses import dataclass

from broker.model.channel import AccessMode, Assignment, AssignmentVersion, PChannel
from broker.model.ids import NodeId, PChannelName, Term

_BEFORE_ANY = AssignmentVersion(-1, -1)


@dataclass(frozen=True, slots=True)
class Location:
    """A pchannel at a term, and the node that serves it."""

    channel: PChannel
    node: NodeId
    address: str

    @property
    def is_read_only(self) -> bool:
        """Whether the node refuses appends at this term."""
        return self.channel.access is AccessMode.READ_ONLY


class AssignmentTable:
    """The newest table seen, over all streams it came through."""

    def __init__(self) -> None:
        self._version = _BEFORE_ANY
        self._locations: dict[PChannelName, Location] = {}
        # Each append to the wrong node is refused, but one report for each term is enough.
        self._reported: set[tuple[PChannelName, Term]] = set()
        self.control_host = PChannelName("")

    @property
    def known(self) -> bool:
        """Whether any table has arrived."""
        return self._version != _BEFORE_ANY

    def accept(self, table: Assignment) -> bool:
        """Replace the table by a newer one; False for one that is not newer."""
        if table.version <= self._version:
            return False
        self._version = table.version
        self.control_host = table.control_host
        self._locations = {
            channel.name: Location(channel, node.node_id, node.address)
            for node in table.nodes
            for channel in node.channels
        }
        return True

    def find(self, name: PChannelName) -> Location | None:
        """Where a pchannel is served; None while nobody serves it."""
        return self._locations.get(name)

    @property
    def channels(self) -> tuple[PChannelName, ...]:
        """All pchannels that are served, sorted."""
        return tuple(sorted(self._locations))

    @property
    def addresses(self) -> tuple[str, ...]:
        """Of all nodes that serve anything, sorted."""
        return tuple(sorted({it.address for it in self._locations.values()}))

    def should_report(self, channel: PChannel) -> bool:
        """True the first time on this stream that this term of a channel is reported."""
        report = (channel.name, channel.term)
        if report in self._reported:
            return False
        self._reported.add(report)
        return True

    def stream_opened(self) -> None:
        """A new stream: earlier reports may have been lost with the last one, so allow repeats."""
        self._reported.clear()
