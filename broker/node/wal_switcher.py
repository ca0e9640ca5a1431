"""Moves the logs of a node to another place when the metadata says so, a step at a time."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from actors import Actor, ActorError, Context, Envelope
from broker.node.appender_messages import DoAtRest
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel
from broker.ports.meta import MetaError
from broker.ports.wal import WalError

LOOK_S = 1.0
SOON_S = 0.01
REST_S_MAX = 300.0
"""Above what the drivers wait for an answer."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LookAtLogs:
    """A timer."""


class WalSwitcher(Actor[LookAtLogs]):
    """See the module. `statistics`: whether a switch is under way."""

    _context: Context[LookAtLogs]

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._busy = False

    async def started(self, context: Context[LookAtLogs]) -> None:
        """Look every second, and sooner while there is something to do."""
        self._context = context
        context.every(LOOK_S, LookAtLogs())

    async def receive(self, batch: Sequence[Envelope[LookAtLogs]]) -> None:
        """Do a step for each pchannel in turn."""
        switch, more = self._node.switch, False
        try:
            self._busy = await switch.look()
            if not self._busy:
                return
            for opened in self._node.open_channels.all():
                more |= await self._step(opened)
            await switch.advance()
        except MetaError as error:
            log.warning("cannot go on with the switch of the log", why=str(error))
            return
        if more:
            self._context.after(SOON_S, LookAtLogs())

    def statistics(self) -> dict[str, int]:
        return {"switching": int(self._busy)}

    async def _step(self, opened: OpenChannel) -> bool:
        at_rest = partial(_at_rest, opened)
        try:
            return await self._node.switch.step(opened.channel.name, opened.log, at_rest)
        except ActorError:
            return False  # its Appender has ended: the next one opens the log where it lies by then


async def _at_rest(opened: OpenChannel, work: Callable[[], Awaitable[None]]) -> None:
    async def answered() -> Exception | None:
        # A PlannedRestart is none of these: the Appender restarts by it.
        try:
            await work()
        except (WalError, MetaError) as error:
            return error
        return None

    error = await opened.appender.ask(DoAtRest(answered), deadline_s=REST_S_MAX)
    if error is not None:
        raise error
