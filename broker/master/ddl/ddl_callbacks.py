"""The callbacks of changes of the meta table: apply them, then call what the user has set."""

from collections.abc import Callable
from typing import Any, Final

import structlog

from actors import Ref
from broker.core.naming import is_control_channel
from broker.master.table.messages import ApplyChange
from broker.model.broadcast import Broadcast, Broadcasted
from broker.model.ids import TimeTick
from broker.model.message import MessageType
from broker.ports.callbacks import Callback, Callbacks, EndRecord, EndsBroadcast
from broker.ports.headers import BadHeader
from broker.ports.master.ddl_messages import DdlMessages

APPLY_S: Final = 30.0
DDL_TYPES: Final = (
    MessageType.CREATE_COLLECTION,
    MessageType.DROP_COLLECTION,
    MessageType.ALTER_COLLECTION,
    MessageType.SCHEMA_CHANGE,
    MessageType.CREATE_PARTITION,
    MessageType.DROP_PARTITION,
    MessageType.ALTER_ALIAS,
    MessageType.DROP_ALIAS,
    MessageType.CREATE_INDEX,
    MessageType.DROP_INDEX,
    MessageType.CREATE_DATABASE,
    MessageType.DROP_DATABASE,
)

REMOVALS: Final = frozenset({MessageType.DROP_COLLECTION, MessageType.DROP_INDEX})
"""Their records go in more than one write."""

END_BYTES_MAX: Final = 8 * 1024
BODY_BYTES_MAX: Final = 64 * 1024
"""Of an end that shares the write of its change, and of a broadcast that has one: a write has a
limit. The end of one to thousands of vchannels is larger, and so is a large schema."""

log = structlog.get_logger(__name__)


def ddl_callbacks(
    others: Callbacks,
    messages: DdlMessages,
    find: Callable[[str], Ref[Any]],
    table_path: str,
) -> Callbacks:
    """`others`, with the application of every change before them."""

    def applying(then: Callback | None) -> Callback:
        alone = _Applies(messages, find, table_path)
        return alone if then is None else _then(alone, then)

    return {**others, **{int(kind): applying(others.get(kind)) for kind in DDL_TYPES}}


class _Applies(EndsBroadcast):
    """See EndsBroadcast: the table lies in the store of the broadcasts."""

    def __init__(
        self, messages: DdlMessages, find: Callable[[str], Ref[Any]], table_path: str
    ) -> None:
        self._messages = messages
        self._find = find
        self._path = table_path

    async def __call__(self, broadcast: Broadcast, outcome: Broadcasted, /) -> None:
        await self._apply(broadcast, outcome, None)

    def ends(self, broadcast: Broadcast, end: EndRecord, /) -> bool:
        """See EndsBroadcast."""
        small = len(end.value) <= END_BYTES_MAX and len(broadcast.body) <= BODY_BYTES_MAX
        return small and broadcast.type not in REMOVALS

    async def apply_with_end(
        self, broadcast: Broadcast, outcome: Broadcasted, end: EndRecord, /
    ) -> int | None:
        """See EndsBroadcast."""
        return await self._apply(broadcast, outcome, end)

    async def _apply(
        self, broadcast: Broadcast, outcome: Broadcasted, end: EndRecord | None
    ) -> int | None:
        try:
            change = self._messages.decode(broadcast.type, broadcast.body, broadcast.vchannels)
        except BadHeader as error:
            # A client of Milvus sent it, and each node judges its copy: it must not block others.
            log.warning("a change of definitions is not applied", error=str(error))
            return None
        if change is None:
            return None
        # Looked up each time: a reference does not follow a restart of the table.
        order = ApplyChange(change, _tick(outcome), end)
        return await self._find(self._path).ask(order, deadline_s=APPLY_S)


def _then(applies: Callback, then: Callback) -> Callback:
    async def both(broadcast: Broadcast, outcome: Broadcasted, /) -> None:
        await applies(broadcast, outcome)
        await then(broadcast, outcome)

    return both


def _tick(outcome: Broadcasted) -> TimeTick:
    """The tick on the control channel; the largest when the client chose not to send it there."""
    control = [it.tick for name, it in outcome.results.items() if is_control_channel(name)]
    return max(control or [it.tick for it in outcome.results.values()])
