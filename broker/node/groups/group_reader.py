"""Reads one vchannel for its group, through a Scanner that is started when it is needed.

The Scanner keeps no position, so its next life, or another one, goes on where it was.
"""

from collections.abc import Callable
from typing import Any

from actors import (
    ActorError,
    ChildSpec,
    Context,
    MailboxSpec,
    NoSuchActor,
    Overflow,
    Ref,
    Restart,
)
from broker.core.log.delivery import Selection
from broker.model.failure import Refusal, Refused
from broker.model.groups.consumer_group import GroupKey
from broker.model.ids import TimeTick
from broker.model.position import ReadPosition
from broker.node.scanner import Scanner
from broker.node.scanner_messages import CloseScanner, Delivery, Pull, ScannerMessage
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel

PULL_S = 10.0
START_S = 5.0
SCANNERS = "scanners"

Answer = Delivery | Refusal | Exception


class GroupReader:
    """For one Group, whose context is `group`."""

    def __init__(
        self, group: Context[Any], opened: OpenChannel, key: GroupKey, node: NodeRuntime
    ) -> None:
        self._group = group
        self._opened = opened
        self._key = key
        self._node = node
        self._scanner: Ref[ScannerMessage] | None = None
        self._path = ""
        self._started = 0

    async def behind(self, tick: TimeTick) -> ReadPosition:
        """Where to read what lies above the tick. Raises Refused."""
        found = await self._opened.seek(TimeTick(tick + 1))
        # The log may hold a group that is not published yet.
        next_id = min(found, self._opened.tail.next_id)
        # Below its first message the log has forgotten the begins of transactions.
        partial = next_id <= self._opened.log.bounds().first_id
        purges = self._opened.purges
        if purges.upto(self._key.vchannel) <= tick:
            return ReadPosition(next_id, tick, partial=partial)
        # It misses no rows that were purged before, and gets what a purge leaves: not only rows.
        return ReadPosition(next_id, tick, partial=True, purged=purges.newest_tick())

    async def pull(
        self, cursor: ReadPosition, bytes_max: int, answered: Callable[[Answer], None]
    ) -> None:
        """Read on; `answered` gets the outcome later. Raises ActorError when nothing can read."""
        scanner = self._scanner
        if scanner is None:
            scanner = self._scanner = await self._found_or_started()
        try:
            scanner.ask_then(Pull(cursor, bytes_max), answered, deadline_s=PULL_S)
        except ActorError:
            self._scanner = None
            raise

    def lost(self) -> None:
        """The Scanner does not answer: look for its next life at the next pull."""
        self._scanner = None

    def close(self) -> None:
        """Nothing is read any more."""
        if self._scanner is not None:
            try:
                self._scanner.tell(CloseScanner())
            except ActorError:
                return  # it is gone

    async def _found_or_started(self) -> Ref[ScannerMessage]:
        if self._path:
            try:
                return self._group.tree.find(self._path)
            except NoSuchActor:
                pass  # it has closed, because nothing was read for long
        return await self._start()

    async def _start(self) -> Ref[ScannerMessage]:
        name, node = self._opened.channel.name, self._node
        selection = Selection(self._key.vchannel, TimeTick(0), None, whole=True, released=True)
        self._started += 1
        spec = ChildSpec(
            # Of each life of the Group another one, as an earlier one may not be gone yet.
            name=f"{self._key.name}@{self._key.vchannel}.{self._group.term}.{self._started}",
            build=lambda: Scanner(name, selection, node),
            mailbox=MailboxSpec(bound=16, overflow=Overflow.FAIL, batch_max=16),
            restart=Restart.TRANSIENT,
        )
        # channel[name]/log/groups/<group>
        above = f"{self._group.path.rsplit('/', 2)[0]}/{SCANNERS}"
        self._path = f"{above}/{spec.name}"
        return await self._group.tree.start_child(above, spec, deadline_s=START_S)


async def position_or_refusal(reader: GroupReader, tick: TimeTick) -> ReadPosition | Refusal:
    """`reader.behind`, with a refusal as a value."""
    try:
        return await reader.behind(tick)
    except Refused as error:
        return error.refusal
