"""Knows which pchannels this node should serve and does serve; answers all requests to the node.

It never opens or closes a log itself, so it never waits for one: each pchannel's ChannelController
does that, and its Appender reports when it serves. It is no parent of the channels in the actor
tree: when it dies, appends continue, and its next incarnation finds them in `OpenChannels`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from actors import (
    Actor,
    Context,
    Envelope,
    NoSuchActor,
    NotRunning,
    Ref,
    Terminated,
)
from broker.core.cluster.actor_kinds import PAUSED
from broker.core.cluster.channel_lifetime import (
    NEVER_SEEN,
    ChannelLifetime,
    NoAnswerYet,
    ServingState,
    answer_for,
    call_refusal,
    channel_refusal,
    closed,
    expect,
    failed,
    opened,
    read_only_refusal,
)
from broker.core.log.reader_start import start_position
from broker.core.naming import PCHANNELS_MAX, pchannel_name_refusal, pchannel_of
from broker.model.channel import AccessMode, ChannelOffsets
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import PChannelName, Term
from broker.node.channel_controller import (
    MoveTo,
    StartScanner,
)
from broker.node.controller_commands import ControllerCommands
from broker.node.directory_messages import (
    AssignChannel,
    ChannelStatus,
    CloseAllChannels,
    CollectStatus,
    Describe,
    DirectoryMessage,
    Drain,
    FindScanner,
    LatestMvcc,
    Locate,
    Located,
    NodeStatus,
    OpenScanner,
    PauseConsumption,
    RemoveChannel,
    ShowClosedTicks,
)
from broker.node.scanner_messages import ScannerMessage
from broker.node.state.channel_events import (
    ChannelEvent,
    ChannelFailed,
    ChannelOpened,
    ChannelReleased,
    ControllerRestarted,
)
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel
from broker.node.state.oracle_view import OracleView

CHANNELS = "channels"
SUBTREE_CHECK_S = 0.05


@dataclass(frozen=True, slots=True)
class CheckSubtree:
    """A timer: check that a pchannel that should be open here still has its actors."""

    name: PChannelName


_Message = DirectoryMessage | CheckSubtree | Terminated
_Envelope = Envelope[_Message]


class Directory(Actor[_Message]):
    """See the module."""

    _context: Context[_Message]
    _commands: ControllerCommands
    _oracle: OracleView

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._lifetimes: dict[PChannelName, ChannelLifetime] = {}
        self._waiting: dict[PChannelName, list[tuple[ServingState, _Envelope]]] = {}
        self._access: dict[PChannelName, AccessMode] = {}
        """The access mode each pchannel was served with last."""
        self._closing = False

    async def started(self, context: Context[_Message]) -> None:
        """Receive channel events from now on, and read from `OpenChannels` what came before."""
        self._context = context
        limit_s = self._node.limits.barrier_wait_s_max
        self._oracle = OracleView(self._node.ticks, context.clock, limit_s)
        node_path = context.path.rpartition("/")[0]
        self._commands = ControllerCommands(f"{node_path}/{CHANNELS}", context.tree, self._node)
        self._node.open_channels.listener = context.self
        for each in self._node.open_channels.all():
            self._on_opened(each.channel.name, each.channel.term)

    async def receive(self, batch: Sequence[_Envelope]) -> None:
        """Answer requests now, or keep them until the event that answers them."""
        for envelope in batch:
            match envelope.message:
                case AssignChannel(channel):
                    move = MoveTo(ServingState(channel.term, removed=False), channel.access)
                    await self._request_stage(channel.name, move, envelope)
                case RemoveChannel(name, term):
                    await self._request_stage(
                        name, MoveTo(ServingState(term, removed=True)), envelope
                    )
                case OpenScanner() as request:
                    # Replied to by the ChannelController: starting an actor takes time, and others
                    # wait here.
                    await self._open_scanner(request, envelope)
                case (
                    ChannelOpened()
                    | ChannelFailed()
                    | ChannelReleased()
                    | ControllerRestarted()
                    | CheckSubtree()
                    | Terminated()
                ) as event:
                    await self._on_event(event)
                case PauseConsumption(paused):
                    self._node.pause.on = paused
                    envelope.reply(None)
                case CloseAllChannels():
                    await self._close_all()
                case Drain():
                    self._closing = True
                case _ as question:
                    envelope.reply(self._answer(question))

    def statistics(self) -> Mapping[str, int | float | str]:
        """How many pchannels serve, and how many requests wait for one to open or close."""
        return {
            "serving": len(self._node.open_channels.all()),
            "known": len(self._lifetimes),
            "waiting": sum([len(each) for each in self._waiting.values()]),
            PAUSED: int(self._node.pause.on),
        }

    def _answer(
        self,
        question: Locate | FindScanner | CollectStatus | Describe | ShowClosedTicks | LatestMvcc,
    ) -> object:
        match question:
            case Locate(name, term, writes):
                found = self._find(name, term)
                if isinstance(found, Refusal):
                    return found
                return self._located(found, writes=writes)
            case FindScanner(path):
                return self._find_scanner(path)
            case CollectStatus():
                return self._status()
            case Describe(names):
                return tuple([self._describe(name) for name in names])
            case ShowClosedTicks(names):
                # Not by `_describe`: this is asked five times a second.
                found_ones = [self._find(name, None) for name in names]
                serving = [it for it in found_ones if isinstance(it, OpenChannel)]
                return {it.channel.name: it.tail.closed.tick for it in serving}
            case LatestMvcc(vchannel):
                found = self._find(pchannel_of(vchannel), None)
                return found if isinstance(found, Refusal) else found.mvcc.of(vchannel)
            case _:
                assert_never(question)

    # ---- what should be open ----------------------------------------------------------------

    async def _request_stage(self, name: PChannelName, move: MoveTo, envelope: _Envelope) -> None:
        stage = move.stage
        refusal = channel_refusal(name, stage.term) or self._admission_refusal(name)
        if refusal is not None:
            envelope.reply(refusal)
            return
        lifetime = expect(self._lifetimes.get(name, NEVER_SEEN), stage)
        if isinstance(lifetime, Refusal):
            envelope.reply(lifetime)
            return
        self._lifetimes[name] = lifetime
        self._waiting.setdefault(name, []).append((stage, envelope))
        refusal = await self._commands.send(name, move)
        if refusal is not None:
            self._lifetimes[name] = failed(lifetime, stage, refusal)
        # In any case: this request may have overtaken earlier ones, which are answered now.
        self._answer_waiting(name)

    def _admission_refusal(self, name: PChannelName) -> Refusal | None:
        """Why this node does not take the pchannel. The name comes from outside: check it."""
        if self._closing:
            return self._shutting_down()
        # Whoever reaches the port may assign any name, and names are never forgotten here.
        if name not in self._lifetimes and len(self._lifetimes) >= PCHANNELS_MAX:
            cause = f"{name}: this node has {PCHANNELS_MAX} pchannels already, the limit"
            return Refusal(StreamingCode.RESOURCE_ACQUIRED, cause)
        return pchannel_name_refusal(name)

    async def _close_all(self) -> None:
        """Remove each pchannel at the newest term known here."""
        for name, lifetime in list(self._lifetimes.items()):
            removal = ServingState(lifetime.expected.term, removed=True)
            if removal > lifetime.expected:
                self._lifetimes[name] = replace(lifetime, expected=removal)
                await self._commands.send(name, MoveTo(removal))
                self._answer_waiting(name)

    async def _on_event(self, event: ChannelEvent | CheckSubtree | Terminated) -> None:
        match event:
            case ChannelOpened(channel):
                self._on_opened(channel.name, channel.term)
            case ChannelFailed(name, term, refusal, final, closing):
                stage = ServingState(term, removed=closing)
                await self._on_failure(name, stage, refusal, final=final)
            case ChannelReleased(name, term):
                self._lifetimes[name] = closed(self._lifetime(name), term)
                self._commands.complete(name, ServingState(term, removed=True))
                self._answer_waiting(name)
                self._node.observer.closed(self._node.node_id, name, term, reopens=False)
            case ControllerRestarted(name, actor_term):
                await self._commands.repeat(name, actor_term)
                await self._check_subtree(name)
            case CheckSubtree(name):
                await self._check_subtree(name)
            case Terminated(path, dead_term):
                name = PChannelName(path.split("/")[-3])  # channel[name]/log/appender
                # At once, so that nobody is sent to the dead Appender; its next term publishes
                # itself.
                self._node.open_channels.withdraw(name, Term(dead_term))
                # Its supervisor restarts it, unless the channel is being closed: that is reported
                # when it is done.
                self._node.observer.closed(self._node.node_id, name, Term(dead_term), reopens=True)
                await self._check_subtree(name)
            case _:
                assert_never(event)

    async def _on_failure(
        self, name: PChannelName, stage: ServingState, refusal: Refusal, *, final: bool
    ) -> None:
        """Answer waiting requests; close the channel after a final failure.

        Otherwise its supervisor would retry for ever. A later stage that is expected goes first.
        """
        lifetime = self._lifetimes[name] = failed(self._lifetime(name), stage, refusal)
        self._commands.complete(name, stage)
        self._answer_waiting(name)
        if not final:
            return
        self._node.observer.closed(self._node.node_id, name, stage.term, reopens=False)
        removal = ServingState(stage.term, removed=True)
        if removal >= lifetime.expected:
            await self._commands.send(name, MoveTo(removal))

    async def _check_subtree(self, name: PChannelName) -> None:
        """Reopen a pchannel whose supervisor died: with it the log subtree is gone for good.

        Repeated until the supervisor is back, or another stage is expected.
        """
        lifetime, access = self._lifetime(name), self._access.get(name)
        served = lifetime.current == lifetime.expected and not lifetime.expected.removed
        if access is None or not served or self._closing or self._commands.moving(name):
            return
        try:
            self._commands.find_log(name)
        except NotRunning:
            pass  # its supervisor restarts it, or is about to stop it
        except NoSuchActor:
            again = MoveTo(lifetime.expected, access, again=True)
            if await self._commands.send(name, again) is None:
                return
        else:
            return
        self._context.after(SUBTREE_CHECK_S, CheckSubtree(name))

    def _on_opened(self, name: PChannelName, term: Term) -> None:
        self._lifetimes[name] = opened(self._lifetime(name), term)
        self._commands.complete(name, ServingState(term, removed=False))
        self._answer_waiting(name)
        found = self._node.open_channels.find(name)
        # The event may be old: the channel may have closed, or opened at a newer term, since then.
        if found is not None and found.channel.term == term:
            self._access[name] = found.channel.access
            # An Appender that is killed reports nothing itself.
            self._context.watch(found.appender)
            self._node.observer.opened(self._node.node_id, found.channel)

    def _answer_waiting(self, name: PChannelName) -> None:
        """Answer the requests whose stage was reached, failed or was overtaken."""
        waiting: list[tuple[ServingState, _Envelope]] = []
        for stage, envelope in self._waiting.pop(name, []):
            answer = answer_for(self._lifetime(name), stage)
            if isinstance(answer, NoAnswerYet):
                waiting.append((stage, envelope))
            else:
                envelope.reply(answer)
        if waiting:
            self._waiting[name] = waiting

    def _lifetime(self, name: PChannelName) -> ChannelLifetime:
        return self._lifetimes.get(name, NEVER_SEEN)

    # ---- what is open -----------------------------------------------------------------------

    def _find(self, name: PChannelName, term: Term | None) -> OpenChannel | Refusal:
        found = self._node.open_channels.find(name)
        serving = None if found is None else found.channel.term
        refusal = call_refusal(name, term, serving, closing=self._closing)
        if refusal is not None:
            return refusal
        # `call_refusal` refuses a channel that does not serve.
        assert found is not None
        return found

    async def _open_scanner(self, request: OpenScanner, envelope: _Envelope) -> None:
        found = self._find(request.name, request.term)
        if isinstance(found, Refusal):
            envelope.reply(found)
            return
        cursor = start_position(request.policy, found.offsets())
        if isinstance(cursor, Refusal):
            envelope.reply(cursor)
            return
        start = StartScanner(envelope, request, cursor, found.channel.term)
        refusal = await self._commands.send(request.name, start)
        if refusal is not None:
            envelope.reply(refusal)

    def _find_scanner(self, path: str) -> Ref[ScannerMessage] | Refusal:
        try:
            return self._context.tree.find(path)
        except NotRunning as error:
            return Refusal(StreamingCode.INNER, f"{error}; retry in a moment")
        except NoSuchActor as error:
            return Refusal(StreamingCode.CHANNEL_NOT_EXIST, str(error))

    def _status(self) -> NodeStatus | Refusal:
        if self._closing:
            return self._shutting_down()
        statuses = [
            ChannelStatus(
                channel=each.channel,
                offsets=each.offsets(),
                mvcc_tick=each.mvcc.persisted_tick,
                recovery_tick=each.recovery_tick,
            )
            for each in self._node.open_channels.all()
            # A coordinator that asks while one is closing must not take this node for its owner:
            # if the report of the close is lost, only a client would find that nobody serves it.
            if not self._lifetime(each.channel.name).expected.removed
        ]
        return NodeStatus(self._node.node_id, tuple(statuses))

    def _describe(self, name: str) -> ChannelOffsets | Refusal:
        found = self._find(pchannel_of(name), None)
        if isinstance(found, Refusal):
            return found
        return replace(found.offsets(), purged_tick=found.purges.removes_upto(name))

    def _located(self, found: OpenChannel, *, writes: bool) -> Located | Refusal:
        if writes and found.channel.access is AccessMode.READ_ONLY:
            return read_only_refusal(found.channel.name)
        return Located(
            *(found.channel, found.appender, found.backlog, found, found.closed, self._oracle),
            groups=found.groups,
            pressure=self._node.pressure,
            storage=self._node.storage,
        )

    def _shutting_down(self) -> Refusal:
        cause = f"node {self._node.node_id} is shutting down"
        return Refusal(StreamingCode.ON_SHUTDOWN, cause)
