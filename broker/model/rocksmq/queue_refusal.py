"""Why a queue did not carry out a call."""

from dataclasses import dataclass
from enum import Enum, auto


class QueueFault(Enum):
    """What was wrong; each is an exception of its own in `broker/rocksmq/queue_errors.py`."""

    BAD_NAME = auto()
    BAD_ARGUMENT = auto()
    CHANNEL_EXISTS = auto()
    NO_CHANNEL = auto()
    GROUP_EXISTS = auto()
    NO_GROUP = auto()
    OUT_OF_RANGE = auto()


@dataclass(frozen=True, slots=True)
class QueueRefusal:
    """A call without effect: what was wrong, with which value, and what to do."""

    fault: QueueFault
    cause: str
