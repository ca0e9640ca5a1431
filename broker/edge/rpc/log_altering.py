"""The switch of the log, as the edge asks for it. Implemented in `broker/app/switching`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from broker.core.cluster.wal_alter import Alter, ChannelAlter
from broker.model.failure import invalid_argument
from broker.model.ids import PChannelName


@dataclass(frozen=True, slots=True)
class AlterState:
    """The newest switch, and how far each pchannel is. `founded`: where the log was before any."""

    founded: str
    alter: Alter | None = None
    channels: Mapping[PChannelName, ChannelAlter] = field(default_factory=dict)


class LogAltering(Protocol):
    """Every call raises Refused: INNER when the metadata does not answer."""

    async def begin(self, target: str, *, leaves_history: bool) -> None:
        """Begin a switch to `target`. Refused(INVALID_ARGUMENT) when it cannot be."""
        ...

    async def abort(self) -> None:
        """Turn a switch back. Refused(INVALID_ARGUMENT) when it cannot be."""
        ...

    async def state(self) -> AlterState:
        """How far it is. Refused(INVALID_ARGUMENT) when it is not known where the log is."""
        ...


class NoLogAltering:
    """Of a process that decides about no switch."""

    async def begin(self, target: str, *, leaves_history: bool) -> None:
        """See LogAltering."""
        raise invalid_argument("this server switches no logs; ask the coordinator")

    async def abort(self) -> None:
        """See LogAltering."""
        raise invalid_argument("this server switches no logs; ask the coordinator")

    async def state(self) -> AlterState:
        """See LogAltering."""
        raise invalid_argument("this server switches no logs; ask the coordinator")
