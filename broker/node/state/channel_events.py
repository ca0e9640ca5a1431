"""What the actors of a pchannel report to the Directory."""

from dataclasses import dataclass

from broker.model.channel import PChannel
from broker.model.failure import Refusal
from broker.model.ids import PChannelName, Term


@dataclass(frozen=True, slots=True)
class ChannelOpened:
    """An Appender holds its log at this term and serves; it can be found in `OpenChannels`."""

    channel: PChannel


@dataclass(frozen=True, slots=True)
class ChannelFailed:
    """A pchannel could not be opened at this term, or lost it.

    `final`: nobody may try again here. Otherwise its supervisor goes on at later terms.
    """

    name: PChannelName
    term: Term
    refusal: Refusal
    final: bool


@dataclass(frozen=True, slots=True)
class ChannelReleased:
    """Nothing of the pchannel, up to this term, runs or is open here any more."""

    name: PChannelName
    term: Term


@dataclass(frozen=True, slots=True)
class ControllerRestarted:
    """A pchannel's ChannelController was restarted at this actor term; its last command is lost."""

    name: PChannelName
    actor_term: int


ChannelEvent = ChannelOpened | ChannelFailed | ChannelReleased | ControllerRestarted
