"""Starts changes of the meta table, each under the request id of its caller."""

from hashlib import sha256
from typing import Final
from uuid import uuid4

from broker.coordinator.broadcast.messages import PlanBroadcast
from broker.core.master.ddl_answer import DdlAnswer, read_answer
from broker.core.master.ddl_keys import ddl_keys
from broker.core.naming import is_control_channel
from broker.edge.rpc.broadcasts_enabled import BroadcastsEnabled
from broker.edge.rpc.proxies import Proxy
from broker.model.broadcast import Broadcasted
from broker.model.failure import invalid_argument
from broker.model.ids import TimeTick
from broker.model.master.ddl import Ddl, PlannedRequest
from broker.ports.row_schemas import RowSchemas
from schemas.generated.tidemark import v1

DDL_S: Final = 3600.0
"""For callers without a deadline of their own, which wait until the names are free."""
ENABLED_S: Final = 5.0
REQUEST_ID_LENGTH_MAX: Final = 256


class DdlCalls:
    """`change` returns when a change has taken effect on every vchannel and in the table."""

    def __init__(self, broadcaster: Proxy, assigner: Proxy, schemas: RowSchemas) -> None:
        self._broadcaster = broadcaster
        self._enabled = BroadcastsEnabled(assigner)
        self._schemas = schemas

    async def change(self, ddl: Ddl, base: v1.MsgBase | None = None) -> "DoneChange":
        """Refused as the planner refuses; a repeat with the same request id is told the same."""
        base = base or v1.MsgBase()
        if len(base.request_id) > REQUEST_ID_LENGTH_MAX:
            raise invalid_argument(
                f"the request id has {len(base.request_id)} characters;"
                f" at most {REQUEST_ID_LENGTH_MAX} are allowed"
            )
        key = f"ddl:{base.source_id}:{base.request_id}" if base.request_id else _own_key()
        await self._enabled.wait(ENABLED_S)
        fingerprint = sha256(repr(ddl).encode()).hexdigest()
        request = PlannedRequest(ddl, ddl_keys(ddl), key, fingerprint, base.timestamp)
        done = await self._broadcaster.ask(PlanBroadcast(request), deadline_s=DDL_S)
        # Before the answer: appends of this process see it from here on.
        self._schemas.note_change()
        return DoneChange(done)


class DoneChange:
    """What a change has done: `answer`, and the tick of its copy on the control channel."""

    def __init__(self, done: Broadcasted) -> None:
        self.answer: DdlAnswer = read_answer(done.answer)
        ticks = [it.tick for name, it in done.results.items() if is_control_channel(name)]
        self.tick = max(ticks, default=TimeTick(0))

    def response(self) -> v1.DdlResponse:
        """The answer to a call without a result of its own."""
        return v1.DdlResponse(id=self.answer.id, time_tick=self.tick)


def _own_key() -> str:
    # Of this call alone: it is asked again under this name when the Broadcaster dies meanwhile.
    return f"call:{uuid4().hex}"
