"""Reads what logs held before they were counted, for the limits of storage: one segment a turn.

Each segment once, and again after it was written anew. Beside the StorageWatch, because it takes
seconds. Where a purge lies within a segment with much of its vchannel, the heads behind it are
read: by its ids alone it would count for too much or too little.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from actors import Actor, Context, Envelope, Request
from broker.core.space.log_sizes import Straddled
from broker.core.space.retention_due import head_bytes
from broker.model.failure import Refused
from broker.model.ids import MessageId, PChannelName
from broker.model.retention.policy import SealedSegment
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel
from broker.ports.wal import Corrupt, WalError

LOOK_S: Final = 1.0
RETRY_S: Final = 5.0
"""After a log has refused."""
LOOKS_MAX: Final = 64
"""Reads of the log, of up to 4 MiB each, for one purge."""
WORTH_SHARE: Final = 16
"""What is less than such a part of its limit is estimated."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReadSizes(Request[None]):
    """A timer: read the next segment, if there is one to read."""


class SizeReader(Actor[ReadSizes]):
    """See the module."""

    _context: Context[ReadSizes]

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._retry_s: dict[PChannelName, float] = {}
        self._read = self._failures = 0

    async def started(self, context: Context[ReadSizes]) -> None:
        """Look every second whether there is something to read."""
        self._context = context
        context.on_beat(LOOK_S, ReadSizes())

    async def receive(self, batch: Sequence[Envelope[ReadSizes]]) -> None:
        """Read one segment; come again at once if there may be more."""
        if await self._step():
            self._context.after(0.0, ReadSizes())
        for envelope in batch:
            envelope.reply(None)

    def statistics(self) -> Mapping[str, int | float | str]:
        """Segments that were read, and that are left."""
        counted = [it.sizes for it in self._node.open_channels.all()]
        return {
            "segments_read": self._read,
            "segments_left": sum([len(it.unread) for it in counted]),
            "failures": self._failures,
        }

    async def _step(self) -> bool:
        now_s = self._context.clock.monotonic_s()
        for channel in self._node.open_channels.all():
            name = channel.channel.name
            if not channel.sizes.wanted or now_s < self._retry_s.get(name, 0.0):
                continue
            try:
                if await self._read_one(channel):
                    self._read += 1
                    return True
            except (WalError, Refused) as error:
                self._failures += 1
                self._retry_s[name] = now_s + RETRY_S
                if not channel.sizes.complete:
                    log.warning(
                        "what a log holds cannot be read now", pchannel=name, error=str(error)
                    )
        return False

    async def _read_one(self, channel: OpenChannel) -> bool:
        """Whether something was read. Raises WalError, Refused."""
        sizes = channel.sizes
        if not sizes.counting:
            await _begin(channel)
        elif sizes.unread:
            await self._read_segment(channel, sizes.unread[0])
        elif sizes.straddled:
            await self._refine(channel, sizes.straddled.pop())
        else:
            return False
        return True

    async def _read_segment(self, channel: OpenChannel, segment: SealedSegment) -> None:
        base_id = _base_of(channel, segment.next_id)
        try:
            contents = await channel.contents.sealed(channel.log, segment)
        except Corrupt as damage:
            name = channel.channel.name
            log.warning("a damaged segment counts as empty", pchannel=name, error=str(damage))
            contents = {}
        channel.sizes.read(segment, base_id, contents)

    async def _refine(self, channel: OpenChannel, found: Straddled) -> None:
        limits = [it.limit for it in self._node.storage.now.uses if found.vchannel in it.bytes]
        if not limits or found.bytes * WORTH_SHARE < limits[0]:
            return
        size, at = 0, found.floor
        for _ in range(LOOKS_MAX):
            heads = [it for it in await channel.heads(at) if it.base_id < found.end_id]
            size += sum([head_bytes(it) for it in heads if it.vchannel == found.vchannel])
            if not heads or heads[-1].next_id >= found.end_id:
                channel.sizes.refine(found, size)
                return
            at = heads[-1].next_id


async def _begin(channel: OpenChannel) -> None:
    """Begin to count, and read the active segment. Raises WalError."""
    sizes = channel.sizes
    sizes.begin(channel.log.bounds().next_id)
    base_id = _active_base(channel)
    try:
        contents = await channel.log.contents(None)
    except Corrupt:
        contents = {}
    except BaseException:
        sizes.stop()
        raise
    sealed = _active_base(channel) != base_id
    sizes.read_active(None if sealed else contents, base_id)


def _active_base(channel: OpenChannel) -> MessageId:
    segments = channel.log.segments()
    return segments[-1].next_id if segments else channel.log.bounds().first_id


def _base_of(channel: OpenChannel, end_id: MessageId) -> MessageId:
    before = [it.next_id for it in channel.log.segments() if it.next_id < end_id]
    return before[-1] if before else channel.log.bounds().first_id
