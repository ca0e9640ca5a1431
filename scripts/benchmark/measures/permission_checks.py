"""Measures the permission check of each batch on an open stream, with `auth` on and off.

As the streams of appends make it: each batch names its vchannel in a string of its own, scanned
from its frame, and what the stream was allowed before is remembered until users, roles or tokens
change. A stream of reads is checked when it is opened, and not for each batch; so is the first
batch of a vchannel.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from types import SimpleNamespace
from typing import Final, TypeVar, cast

import uvloop

from benchmark import names
from benchmark.measures.master.together import Values
from benchmark.results.figures import CHECK
from broker.core.security.access_book import AccessBook, Origin, Principal, Role, User
from broker.core.security.grants import Action, parsed_grant
from broker.edge.milvus.produce import may_append
from broker.edge.rpc.access.access import UNCONTROLLED, Access
from broker.edge.rpc.access.collection_names import CollectionNames
from broker.edge.rpc.append_flow import AppendFlow
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.incoming.request_reader import RequestReader
from broker.edge.rpc.middleware import Call
from broker.edge.tidemark.append_batches import PRODUCE
from broker.node.directory_messages import Located
from broker.ports.row_schemas import NoRowSchemas, Shard
from schemas.wire import ScannedRun, message, produce_request, scan_produce_requests

VCHANNELS: Final = 16
SLICES: Final = 9
CHECKS: Final = 20_000
"""In each slice."""
OPENINGS: Final = 2_000
USERS: Final = 1_000
CONSUME: Final = frozenset({Action.CONSUME})
WHO: Final = Principal("user7", Origin.TOKEN, "token7")
T = TypeVar("T")


class _Catalog(NoRowSchemas):
    async def shard(self, vchannel: str) -> Shard:
        return Shard("orders-eu", rows=False)


class PermissionChecks:
    """`slices`: of each figure in a round."""

    def __init__(self, slices: int = SLICES) -> None:
        self._slices = slices
        self._names = CollectionNames(_Catalog(), "by-dev")
        grants = tuple(map(parsed_grant, ("produce:collection:orders-*", "consume:collection:*")))
        roles = {f"role{it}": Role(f"role{it}", grants) for it in range(USERS)}
        users = {f"user{it}": User(f"user{it}", (f"role{it}",)) for it in range(USERS)}
        self._book = AccessBook(users, roles)

    def measure(self) -> Mapping[str, Values]:
        """Microseconds of CPU for each check; the median of the slices."""
        return uvloop.run(self._measured())

    async def _measured(self) -> dict[str, Values]:
        controlled, open_to_all = await self._flow(auth=True), await self._flow(auth=False)
        found: dict[str, list[float]] = {it: [] for it in names.CHECKS}
        for _ in range(self._slices):
            # Before there are many objects, which the collector would walk through meanwhile.
            found[names.CHECK_FIRST].append(await self._first_us())
            batches, runs = _batches(), _runs()
            for named, flow in (
                (names.checked, controlled),
                (names.unchecked, open_to_all),
            ):
                found[named(names.APPEND_BATCH)].append(_took_us(batches, _of_batch(flow)))
                found[named(names.PRODUCE_RUN)].append(_took_us(runs, _of_run(flow)))
            del batches, runs
        return {name: {CHECK: median(values)} for name, values in found.items()}

    async def _flow(self, *, auth: bool) -> AppendFlow:
        """A stream that has appended to each vchannel."""
        access = self._access() if auth else UNCONTROLLED
        call = SimpleNamespace(access=access, stream=None, reader=RequestReader())
        located = SimpleNamespace(oracle=None)
        flow = AppendFlow(cast(Call, call), cast(Located, located), EdgeLimits())
        for vchannel in _vchannels():
            assert await flow.lacking(PRODUCE, vchannel) is None
        return flow

    def _access(self) -> Access:
        return Access(WHO, lambda: self._book, self._names)

    async def _first_us(self) -> float:
        """Of a stream that has done nothing yet."""
        opened = [self._access() for _ in range(OPENINGS)]
        channels = [it for it, _ in zip(_batches(), opened, strict=False)]
        began = time.thread_time_ns()
        for access, vchannel in zip(opened, channels, strict=True):
            await access.need_channel(CONSUME, vchannel)
        return (time.thread_time_ns() - began) / OPENINGS / 1000


def _took_us(items: Sequence[T], check: Callable[[T], bool]) -> float:
    began = time.thread_time_ns()
    for _ in items:
        pass
    loop = time.thread_time_ns() - began
    began = time.thread_time_ns()
    for it in items:
        check(it)
    return (time.thread_time_ns() - began - loop) / len(items) / 1000


def _of_batch(flow: AppendFlow) -> Callable[[str], bool]:
    return lambda vchannel: flow.holds(PRODUCE, vchannel)


def _of_run(flow: AppendFlow) -> Callable[[ScannedRun], bool]:
    return lambda run: may_append(flow, run)


def _vchannels() -> list[str]:
    return [f"by-dev-rootcoord-dml_{it}_{450 + it}v0" for it in range(VCHANNELS)]


def _batches() -> list[str]:
    """Names as they come out of frames: each a string of its own."""
    scanned = [it.encode() for it in _vchannels()]
    return [scanned[it % VCHANNELS].decode() for it in range(CHECKS)]


def _runs() -> list[ScannedRun]:
    properties = {"_t": "2", "_v": "1", "_h": ""}
    frames = [produce_request(1, message(b"row", properties | {"_vc": it})) for it in _vchannels()]
    return [scan_produce_requests([frames[it % VCHANNELS]], 0)[0][0] for it in range(CHECKS)]
