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
from broker.ports.callbacks import Callback, Callbacks
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

log = structlog.get_logger(__name__)


def ddl_callbacks(
    others: Callbacks,
    messages: DdlMessages,
    find: Callable[[str], Ref[Any]],
    table_path: str,
) -> Callbacks:
    """`others`, with the application of every change before them."""
    return {
        **others,
        **{
            int(kind): _applying(others.get(kind), messages, find, table_path) for kind in DDL_TYPES
        },
    }


def _applying(
    then: Callback | None, messages: DdlMessages, find: Callable[[str], Ref[Any]], path: str
) -> Callback:
    async def apply(broadcast: Broadcast, outcome: Broadcasted, /) -> None:
        try:
            change = messages.decode(broadcast.type, broadcast.body, broadcast.vchannels)
        except BadHeader as error:
            # A client of Milvus sent it, and each node judges its copy: it must not block others.
            log.warning("a change of definitions is not applied", error=str(error))
            change = None
        if change is not None:
            # Looked up each time: a reference does not follow a restart of the table.
            await find(path).ask(ApplyChange(change, _tick(outcome)), deadline_s=APPLY_S)
        if then is not None:
            await then(broadcast, outcome)

    return apply


def _tick(outcome: Broadcasted) -> TimeTick:
    """The tick on the control channel; the largest when the client chose not to send it there."""
    control = [it.tick for name, it in outcome.results.items() if is_control_channel(name)]
    return max(control or [it.tick for it in outcome.results.values()])
