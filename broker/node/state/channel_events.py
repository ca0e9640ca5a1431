"""What the actors of a pchannel report to the Directory."""

from dataclasses import dataclass

from broker.model.channel import PChannel
from broker.model.failure import Refusal
from broker.model.ids import PChannelName, Term


@dataclass(frozen=True, slots=True)
class ChannelOpened:
    """An Appender opened its log at this term and is published in `OpenChannels`."""

    channel: PChannel


@dataclass(frozen=True, slots=True)
class ChannelFailed:
    """A pchannel could not be opened at this term, or lost it.

    `final`: it must not be opened here again. Otherwise its supervisor retries at later terms.
    `closing`: it could not be closed, and may still be open.
    """

    name: PChannelName
    term: Term
    refusal: Refusal
    final: bool
    closing: bool = False


@dataclass(frozen=True, slots=True)
class ChannelReleased:
    """No actor and no file of the pchannel is open here any more, up to this term."""

    name: PChannelName
    term: Term


@dataclass(frozen=True, slots=True)
class ControllerRestarted:
    """A pchannel's ChannelController was restarted at this actor term; its last command is lost."""

    name: PChannelName
    actor_term: int


ChannelEvent = ChannelOpened | ChannelFailed | ChannelReleased | ControllerRestarted
