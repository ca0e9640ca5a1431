"""Turns what a log delivered into messages; passes over what cannot be one, counted and told."""

import logging
from typing import Final

from broker.msgstream.backends.stream_backend import Lot
from broker.msgstream.messages.msg_type import MsgType
from broker.msgstream.messages.ts_msg import MsgPosition, TsMsg
from broker.msgstream.messages.unmarshal_dispatcher import UnmarshalDispatcher
from broker.msgstream.stream_errors import BadMessage, NoTemplate
from broker.msgstream.stream_options import StreamCounters
from broker.msgstream.stream_places import MESSAGE

log: Final = logging.getLogger("tidemark.msgstream")


class MessageReader:
    """Of one stream. `group` goes into the positions of messages."""

    def __init__(self, dispatcher: UnmarshalDispatcher) -> None:
        self.dispatcher = dispatcher
        self.counters = StreamCounters()
        self.group = ""
        self._told: set[str] = set()

    def read(self, lot: Lot, index: int) -> TsMsg | None:
        """The message with its position, None when it is passed over. Not of Arrow rows."""
        raw = lot.payloads[index]
        try:
            msg = self.dispatcher.unmarshal(raw, self.dispatcher.type_of(raw))
        except NoTemplate as error:
            self.counters.no_template += 1
            self._tell(lot.channel, error)
            return None
        except BadMessage as error:
            self.counters.undecodable += 1
            self._tell(lot.channel, error)
            return None
        place = MESSAGE + lot.place(index)
        msg.set_position(MsgPosition(lot.channel, place, self.group, msg.begin_ts))
        return msg

    def read_all(self, lot: Lot, first: int, stop: int) -> list[TsMsg]:
        """The messages of a part of a lot, without time ticks."""
        found = [self.read(lot, index) for index in range(first, stop)]
        return [it for it in found if it is not None and it.type != MsgType.TIME_TICK]

    def _tell(self, channel: str, error: NoTemplate | BadMessage) -> None:
        """One warning for each kind of error and channel: a stream may have millions of them."""
        kind = f"{channel} {error}" if isinstance(error, NoTemplate) else channel
        if kind not in self._told:
            self._told.add(kind)
            log.warning("passed over on %s: %s; later ones are only counted", channel, error)
