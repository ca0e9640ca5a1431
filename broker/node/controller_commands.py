"""Sends commands to ChannelControllers, and remembers each move until it is done.

A ChannelController that dies loses its command; the Directory then has it sent again from here.
"""

from actors import ActorError, NoSuchActor, NotRunning, Ref, Tree
from broker.core.cluster.channel_lifetime import ServingState
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import PChannelName
from broker.node.channel_controller import (
    CONTROLLER,
    ControllerMessage,
    MoveTo,
    channel_spec,
)
from broker.node.channel_tree import LOG
from broker.node.state.node_runtime import NodeRuntime


class ControllerCommands:
    """For one Directory. `channels`: the path of the supervisor of all pchannels."""

    def __init__(self, channels: str, tree: Tree, node: NodeRuntime) -> None:
        self._channels = channels
        self._tree = tree
        self._node = node
        self._moves: dict[PChannelName, tuple[MoveTo, int]] = {}
        """The last move sent to each ChannelController, at its actor term, until it is done."""

    async def send(self, name: PChannelName, message: ControllerMessage) -> Refusal | None:
        """Tell the pchannel's ChannelController; start one if there is none."""
        try:
            controller = await self._controller(name)
            controller.tell(message)
            if isinstance(message, MoveTo):
                # The controller waits for it, and could not heed the newer move.
                self._node.open_channels.leave_opening(name, message.stage)
                self._moves[name] = message, controller.term
        except ActorError as error:
            return Refusal(
                StreamingCode.INNER, f"{name} cannot be opened or closed now: {error}; retry"
            )
        return None

    async def repeat(self, name: PChannelName, actor_term: int) -> None:
        """Send the current move again: the ChannelController of an earlier actor term lost it."""
        move, told_term = self._moves.get(name, (None, actor_term))
        # A move sent to the new incarnation itself is in its mailbox: twice would reopen the log.
        if move is not None and told_term < actor_term:
            await self.send(name, move)

    def complete(self, name: PChannelName, stage: ServingState) -> None:
        """Forget the move when its stage, or a later one, was reached."""
        move, _ = self._moves.get(name, (None, 0))
        if move is not None and stage >= move.stage:
            del self._moves[name]

    def moving(self, name: PChannelName) -> bool:
        """Whether a move was sent that is not done yet."""
        return name in self._moves

    def find_log(self, name: PChannelName) -> None:
        """Raise NoSuchActor if the pchannel has no log subtree, NotRunning if it is restarting."""
        self._tree.find(f"{self._channels}/{name}/{LOG}")

    async def _controller(self, name: PChannelName) -> Ref[ControllerMessage]:
        """Looked up each time: a restart of the `channels` supervisor removes it."""
        path = f"{self._channels}/{name}/{CONTROLLER}"
        try:
            return self._tree.find(path)
        except NotRunning:
            raise  # its supervisor still has it, so a second one of the name cannot be started
        except NoSuchActor:
            await self._tree.start_child(self._channels, channel_spec(name, self._node))
            return self._tree.find(path)
