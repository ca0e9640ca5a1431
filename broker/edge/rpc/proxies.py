"""Asks an actor by its path, so that a request reaches whichever incarnation runs now.

Only for requests that may be delivered twice: a request is repeated when the actor dies before it
answers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import anyio

from actors import ActorDied, NoSuchActor, Ref, Request, StaleTerm
from broker.edge.rpc.access.access_records import AccessRecords, NoAccessRecords
from broker.edge.rpc.log_altering import LogAltering, NoLogAltering
from broker.model.failure import Refusal, Refused
from broker.ports.leader_check import LeaderCheck, NeverLeader
from broker.ports.master.table_reads import MetaTableReads, NoMetaTable
from broker.ports.row_schemas import NoRowSchemas, RowSchemas
from broker.ports.space.collection_sizes import CollectionSizes, NoSizes
from broker.ports.staged_txns import NoStagedTxns, StagedTxns

R = TypeVar("R")

ASK_S: Final = 10.0
RESTART_TRIES: Final = 40
RESTART_PAUSE_S: Final = 0.05
"""A supervisor restarts an actor well within 40 x 50 ms, or it does not restart it at all."""


class Proxy:
    """One actor of the tree. `find` returns the current incarnation."""

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[], Ref[Any]]) -> None:
        self._find = find

    async def ask(self, message: Request[R], *, deadline_s: float = ASK_S) -> R:
        """The answer. Raises ActorError when no incarnation answers, not even after restarts."""
        for _ in range(RESTART_TRIES):
            try:
                return await self._find().ask(message, deadline_s=deadline_s)
            # Not AskTimeout: then the deadline, which is the caller's, has passed.
            except (StaleTerm, ActorDied, NoSuchActor):
                await anyio.sleep(RESTART_PAUSE_S)
        return await self._find().ask(message, deadline_s=deadline_s)

    async def demand(self, message: Request[R | Refusal], *, deadline_s: float = ASK_S) -> R:
        """As `ask`, but raises a refusal as Refused."""
        answer = await self.ask(message, deadline_s=deadline_s)
        if isinstance(answer, Refusal):
            raise Refused(answer.code, answer.cause)
        return answer

    def tell(self, message: object) -> None:
        """Send to the current incarnation. Raises ActorError when there is none."""
        self._find().tell(message)


@dataclass(frozen=True, slots=True)
class Proxies:
    """The actors that the edge asks, and the ports that it calls directly."""

    directory: Proxy
    purging: Proxy
    assigner: Proxy
    catalog: Proxy
    soft_barrier: Proxy
    hard_barrier: Proxy
    cursors: Proxy
    broadcaster: Proxy
    cut_lock: Proxy
    balancer: Proxy
    committer: Proxy
    consumption: Proxy
    oracle: Proxy
    ids: Proxy
    members: Proxy
    proxy_ticks: Proxy
    write_node_ticks: Proxy
    sys_config: Proxy
    segment_reader: Proxy
    segments: Proxy
    table_changes: Proxy
    staged_txns: StagedTxns = NoStagedTxns()
    row_schemas: RowSchemas = NoRowSchemas()
    sizes: CollectionSizes = NoSizes()
    lead: LeaderCheck = NeverLeader()
    meta_table: MetaTableReads = NoMetaTable()
    access: AccessRecords = NoAccessRecords()
    altering: LogAltering = NoLogAltering()
