"""Finds the class of a message by its type, and makes the message from what was read."""

from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Final, Protocol

from broker.msgstream.messages.message_classes import (
    CreateCollectionMsg,
    CreatePartitionMsg,
    DataNodeTtMsg,
    DropCollectionMsg,
    DropPartitionMsg,
    LoadBalanceSegmentsMsg,
    QueryNodeStatsMsg,
    RetrieveMsg,
    RetrieveResultMsg,
    SearchMsg,
    SearchResultMsg,
    SegmentStatisticsMsg,
    TimeTickMsg,
)
from broker.msgstream.messages.msg_header import type_of
from broker.msgstream.messages.msg_type import MsgType
from broker.msgstream.messages.row_msgs import DeleteMsg, InsertMsg
from broker.msgstream.messages.ts_msg import TsMsg
from broker.msgstream.stream_errors import BadMessage, NoTemplate

_MARSHAL: Final[Callable[[TsMsg], bytes]] = methodcaller("marshal")

UnmarshalFunc = Callable[[object], TsMsg]
"""Makes a message from what was read. Raises BadMessage."""

DEFAULT_CLASSES: Final = (
    InsertMsg,
    DeleteMsg,
    SearchMsg,
    SearchResultMsg,
    RetrieveMsg,
    RetrieveResultMsg,
    TimeTickMsg,
    QueryNodeStatsMsg,
    CreateCollectionMsg,
    DropCollectionMsg,
    CreatePartitionMsg,
    DropPartitionMsg,
    SegmentStatisticsMsg,
    LoadBalanceSegmentsMsg,
    DataNodeTtMsg,
)


class UnmarshalDispatcher(Protocol):
    """Templates by message type; what `marshal` gives is what `unmarshal` takes."""

    @property
    def takes_bytes(self) -> bool:
        """Whether messages travel as their bodies."""
        ...

    def type_of(self, raw: object) -> MsgType:
        """The type of what was read. BadMessage when it has none."""
        ...

    def marshal(self, msgs: Sequence[TsMsg]) -> Sequence[object]:
        """What to send for each message."""
        ...

    def unmarshal(self, raw: object, kind: MsgType) -> TsMsg:
        """The message. BadMessage when it cannot be made, NoTemplate for a type without one."""
        ...

    def add_msg_template(self, kind: MsgType, unmarshal: UnmarshalFunc) -> None:
        """Set how messages of a type are made, also in place of an earlier template."""
        ...


class ProtoUnmarshalDispatcher:
    """Of messages as protobuf bodies, whatever log carries them."""

    takes_bytes = True

    def __init__(self) -> None:
        self._templates: dict[MsgType, UnmarshalFunc] = {
            it.kind: it.unmarshal for it in DEFAULT_CLASSES
        }

    def type_of(self, raw: object) -> MsgType:
        """The type in the header."""
        return type_of(raw)

    def marshal(self, msgs: Sequence[TsMsg]) -> list[bytes]:
        """The bodies of the messages."""
        return list(map(_MARSHAL, msgs))

    def unmarshal(self, raw: object, kind: MsgType) -> TsMsg:
        """See UnmarshalDispatcher."""
        if not isinstance(raw, bytes):
            raise BadMessage(f"a message must be bytes, not {type(raw).__name__}")
        return _template(self._templates, kind)(raw)

    def add_msg_template(self, kind: MsgType, unmarshal: UnmarshalFunc) -> None:
        """See UnmarshalDispatcher."""
        self._templates[kind] = unmarshal


class MemUnmarshalDispatcher:
    """Of messages that stay objects of one process: they pass by reference, without encoding.

    Every reader gets the same object, so nobody may change it after it was sent.
    """

    takes_bytes = False

    def __init__(self) -> None:
        self._templates: dict[MsgType, UnmarshalFunc] = {
            it.kind: _as_it_is(it) for it in DEFAULT_CLASSES
        }

    def type_of(self, raw: object) -> MsgType:
        """The type of the object."""
        kind = getattr(raw, "type", None)
        if not isinstance(kind, MsgType):
            raise BadMessage(f"a message must have a type, as {type(raw).__name__} has not")
        return kind

    def marshal(self, msgs: Sequence[TsMsg]) -> Sequence[TsMsg]:
        """The messages themselves."""
        return msgs

    def unmarshal(self, raw: object, kind: MsgType) -> TsMsg:
        """See UnmarshalDispatcher."""
        return _template(self._templates, kind)(raw)

    def add_msg_template(self, kind: MsgType, unmarshal: UnmarshalFunc) -> None:
        """See UnmarshalDispatcher."""
        self._templates[kind] = unmarshal


class UnmarshalDispatcherFactory(Protocol):
    """Makes a dispatcher for each stream, so that templates of one are not those of another."""

    def new_unmarshal_dispatcher(self) -> UnmarshalDispatcher: ...


class ProtoUDFactory:
    """Makes dispatchers of protobuf bodies."""

    def new_unmarshal_dispatcher(self) -> ProtoUnmarshalDispatcher:
        """A new one with the default templates."""
        return ProtoUnmarshalDispatcher()


class MemUDFactory:
    """Makes dispatchers of objects."""

    def new_unmarshal_dispatcher(self) -> MemUnmarshalDispatcher:
        """A new one with the default templates."""
        return MemUnmarshalDispatcher()


def _template(templates: dict[MsgType, UnmarshalFunc], kind: MsgType) -> UnmarshalFunc:
    found = templates.get(kind)
    if found is None:
        raise NoTemplate(
            f"there is no template for messages of type {kind.name} ({int(kind)}); set one with"
            " add_msg_template, or leave them out"
        )
    return found


def _as_it_is(wanted: type[TsMsg]) -> UnmarshalFunc:
    def unmarshal(raw: object) -> TsMsg:
        if not isinstance(raw, wanted):
            raise BadMessage(f"{type(raw).__name__} is not a {wanted.__name__}")
        return raw

    return unmarshal
