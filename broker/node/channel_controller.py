"""Opens and closes the log subtree of one pchannel, and starts its Scanners, one at a time.

Opening may replay a long log; it happens here so that the Directory never waits. The Directory
decides which stage to move to; this actor reports the result as a channel event.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, assert_never

import structlog

from actors import (
    Actor,
    ActorError,
    ChildSpec,
    Context,
    Envelope,
    MailboxSpec,
    NoSuchActor,
    SupervisorSpec,
)
from actors.clock import deadline
from broker.core.cluster.channel_lifetime import ServingState
from broker.core.log.delivery import selection_of
from broker.model.channel import AccessMode, PChannel
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import PChannelName, Term
from broker.model.position import ReadPosition
from broker.node.appender_messages import FinishTxns, ResumeTxns
from broker.node.channel_tree import (
    LOG,
    OPEN_DEADLINE_S,
    RESTARTS_MAX,
    SCANNERS,
    log_spec,
    scanner_spec,
)
from broker.node.directory_messages import OpenScanner, ScannerOpened
from broker.node.scanner_messages import CloseScanner
from broker.node.state.channel_events import ChannelFailed, ChannelReleased, ControllerRestarted
from broker.node.state.node_runtime import NodeRuntime

CONTROLLER = "controller"
START_TRIES = 20
START_PAUSE_S = 0.05

START_DEADLINE_S = OPEN_DEADLINE_S + 10.0
"""Longer than the opening itself, because a start that times out is undone."""

CLOSE_S = 10.0
"""With the stop of the Appender, well within the time that the coordinator waits for a Remove."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MoveTo:
    """Serve the pchannel at this term, or close it.

    `again`: it was served at this term until its supervisor died, so open it at the next term.
    """

    stage: ServingState
    access: AccessMode = AccessMode.READ_WRITE
    again: bool = False


@dataclass(frozen=True, slots=True)
class StartScanner:
    """Start a Scanner and reply to `asked`, an OpenScanner, with it and the cursor.

    `term`: the one the cursor was made for. Retried while the channel's subtree is starting.
    """

    asked: Envelope[Any]
    request: OpenScanner
    cursor: ReadPosition
    term: Term
    tries_left: int = START_TRIES


ControllerMessage = MoveTo | StartScanner


class ChannelController(Actor[ControllerMessage]):
    """See the module."""

    _context: Context[ControllerMessage]

    _channel_path: str

    def __init__(self, name: PChannelName, node: NodeRuntime) -> None:
        self._name = name
        self._node = node
        self._numbers = count(1)

    async def started(self, context: Context[ControllerMessage]) -> None:
        """Undo a FinishTxns of an earlier incarnation; the Directory repeats the move it lost."""
        self._context = context
        self._channel_path = context.path.rpartition("/")[0]
        opened = self._node.open_channels.find(self._name)
        with suppress(ActorError):
            if opened is not None:
                opened.appender.tell(ResumeTxns())
        if context.term > 1:
            self._node.open_channels.report(ControllerRestarted(self._name, context.term))

    async def receive(self, batch: Sequence[Envelope[ControllerMessage]]) -> None:
        """Execute the last move of the batch (it overtakes the others), then start Scanners."""
        moves = [each.message for each in batch if isinstance(each.message, MoveTo)]
        if moves:
            # Before the Scanners of this batch: started earlier they would end with the log.
            await self._move(moves[-1])
        for envelope in batch:
            match envelope.message:
                case MoveTo():
                    continue
                case StartScanner() as start:
                    await self._start_scanner(start)
                case _:
                    assert_never(envelope.message)

    async def _move(self, move: MoveTo) -> None:
        stage = move.stage
        try:
            # Before an assignment, too: the log must be closed at its old term before it opens
            # again.
            await self._close()
            if stage.removed:
                self._node.open_channels.report(ChannelReleased(self._name, stage.term))
                return
            if self._node.open_channels.is_overtaken(self._name, stage):
                return  # the newer move waits behind this one, and an opening may last
            channel = PChannel(self._name, stage.term, move.access)
            spec = log_spec(channel, self._node, again=move.again)
            await self._context.tree.start_child(
                self._channel_path, spec, deadline_s=START_DEADLINE_S
            )
        except Exception as error:  # noqa: BLE001 - a start raises whatever it failed with
            verb = "closed" if stage.removed else "opened"
            refusal = Refusal(StreamingCode.INNER, f"{self._name} cannot be {verb}: {error}")
            failed = ChannelFailed(self._name, stage.term, refusal, False, closing=stage.removed)
            self._node.open_channels.report(failed)

    async def _close(self) -> None:
        await self._finish_txns()
        try:
            await self._context.tree.stop_child(f"{self._channel_path}/{LOG}")
        except NoSuchActor:
            pass
        # A stopped Appender has closed its log; one that was killed has not. If a write hangs, the
        # next owner may begin nevertheless: it fences the write, and nobody here announces ticks.
        with deadline(self._context.clock, CLOSE_S) as closing:
            await self._node.open_channels.release(self._name)
        if closing.cancelled_caught:
            log.warning("a log does not close: it is left", pchannel=self._name, waited_s=CLOSE_S)

    async def _finish_txns(self) -> None:
        """Give clients `txn_finish_s` to end their open transactions on this node."""
        opened = self._node.open_channels.find(self._name)
        if opened is None:
            return
        try:
            await opened.appender.ask(FinishTxns(), deadline_s=self._node.limits.txn_finish_s)
        except ActorError:
            # At the deadline: what is still open continues with the next owner.
            return

    async def _start_scanner(self, start: StartScanner) -> None:
        """Start a Scanner, unless the caller has left meanwhile."""
        if not start.asked.wanted():
            return
        opened = self._node.open_channels.find(self._name)
        if opened is None or opened.channel.term != start.term:
            start.asked.reply(self._reopening(f"term {start.term} has ended"))
            return
        request = start.request
        selection = replace(
            selection_of(request.vchannel, request.filters),
            among=request.among,
            whole=request.whole,
        )
        spec = scanner_spec(
            next(self._numbers),
            self._name,
            selection,
            self._node,
            ignores_pause=request.ignores_pause,
        )
        path = f"{self._channel_path}/{LOG}/{SCANNERS}"
        try:
            scanner = await self._context.tree.start_child(path, spec)
        except ActorError as error:
            self._try_again(start, error)
            return
        if start.asked.wanted():
            start.asked.reply(ScannerOpened(scanner, start.cursor))
        else:  # the caller left during the start: leave no Scanner behind
            with suppress(ActorError):
                scanner.tell(CloseScanner())

    def _try_again(self, start: StartScanner, error: ActorError) -> None:
        """A channel is published a moment before its `scanners` supervisor has started."""
        if start.tries_left > 0:
            again = replace(start, tries_left=start.tries_left - 1)
            self._context.after(START_PAUSE_S, again)
        else:
            start.asked.reply(self._reopening(str(error)))

    def _reopening(self, why: str) -> Refusal:
        cause = f"{self._name} is being reopened: {why}; locate the channel again"
        return Refusal(StreamingCode.ON_SHUTDOWN, cause)


def channel_spec(name: PChannelName, node: NodeRuntime) -> SupervisorSpec:
    """The supervisor of a pchannel: its ChannelController, which adds the log subtree."""
    controller = ChildSpec(
        name=CONTROLLER,
        build=lambda: ChannelController(name, node),
        # A batch, so that the newest move overtakes those that wait before it.
        mailbox=MailboxSpec(batch_max=64),
    )
    return SupervisorSpec(name=name, children=(controller,), restarts_max=RESTARTS_MAX)
