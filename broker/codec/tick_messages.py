"""Time tick messages of the master, appended at the nodes that serve their channels.

Their type is Milvus's `MsgType.TimeTick`. It means nothing to the log, which has ticks of its own;
readers of a channel get it as a message, readers of rows do not get it.
"""

from collections.abc import Sequence
from typing import Final

from broker.codec.owner_appends import Owners, append_at_owners
from broker.model.failure import Refusal
from broker.model.ids import TimeTick
from broker.model.message import NewMessage
from schemas.encoding.entries import write_entry
from schemas.encoding.fields import field
from schemas.splice import time_tick_payload
from schemas.stored import stored_form

TICK_TYPE: Final = 1200
TICK_PROPERTY: Final = "tidemark.time_tick"
"""The tick in decimal, for programs that do not decode the payload, a `msg.TimeTickMsg`."""

_PAYLOAD: Final = 0x12
_PROPERTY: Final = b"\x1a"
_VERSION: Final = 1
_MASTER_ID: Final = 0
"""The sender in the payload; 0 is the master."""


class NodeTickAppends:
    """See TickAppends. `owners` is called for each request."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    async def append(self, tick: TimeTick, channels: Sequence[str]) -> Sequence[Refusal | None]:
        """See TickAppends."""
        messages = [tick_message(tick, channel) for channel in channels]
        outcomes = await append_at_owners(self._owners, messages)
        return [it if isinstance(it, Refusal) else None for it in outcomes]


def tick_message(tick: TimeTick, channel: str) -> NewMessage:
    """The message as an Appender takes it."""
    payload = time_tick_payload(tick, _MASTER_ID)
    properties = stored_form(TICK_TYPE, _VERSION, channel, b"")
    properties += write_entry(_PROPERTY, TICK_PROPERTY, str(tick))
    return NewMessage(
        vchannel=channel,
        type=TICK_TYPE,
        body=field(_PAYLOAD, payload) + properties,
        size=len(payload) + len(properties),
    )
