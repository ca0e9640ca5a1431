"""Serve one Append stream of `tidemark.v1.Log`: batches in, answers out in the same order.

`broker/edge/rpc/append_flow.py` has the back-pressure and the end of the stream. Only
compressed bodies and Arrow rows are decoded, to check them. What was handed to the Appender is
neither retried nor cancelled here.

Next: broker/edge/rpc/append_flow.py
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

import anyio

from broker.core.naming import new_vchannel_fault
from broker.core.pressure.token_bucket import Taken
from broker.core.security.grants import Action
from broker.edge.rpc.append_flow import REQUEST_OVERHEAD_BYTES, AppendFlow, open_append_flow
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.middleware import Call
from broker.edge.rpc.proxies import Proxy
from broker.edge.tidemark.admission.batch_admission import BatchAdmission
from broker.edge.tidemark.admission.rows_admission import RowsAdmission
from broker.edge.tidemark.admission.schedules import NoSchedule, Schedules
from broker.edge.tidemark.admission.shard_admission import ShardAdmission
from broker.edge.tidemark.admission.unpacking import Unpacking
from broker.model.batch import Codec, Durability, NewBatch, ticks_of
from broker.model.failure import Dropped, Refusal, StreamingCode, Throttled
from broker.model.message import Appended
from broker.model.producer_numbers import OutOfSequence
from broker.node.append.group_commit import BATCH_MESSAGES_MAX
from broker.node.appender_messages import PlacedApart, RunOutcome
from broker.ports.row_schemas import RowSchemas
from broker.transport import BatchStream
from schemas.batches import append_landed, append_refused, scan_append_request
from schemas.encoding.frames import frames
from schemas.encoding.oversize import FrameTooLarge, Oversize
from schemas.handshake import APPEND_REVISION, WHOLE_TXNS, append_greeting

PRODUCE: Final = frozenset({Action.PRODUCE})
GROUP_BYTES_MAX: Final = 2 * 1024 * 1024
"""Batches that arrived together go to the Appender as one group, up to this size."""


class Admissions:
    """The checks that all Append streams of a server share."""

    def __init__(self, schemas: RowSchemas, bytes_max: int) -> None:
        self.unpacking = Unpacking()
        self.rows = RowsAdmission(schemas, bytes_max, self.unpacking)
        self.shards = ShardAdmission(schemas)


async def serve_append(
    call: Call, directory: Proxy, admissions: Admissions, limits: EdgeLimits
) -> None:
    """Serve one stream from its handshake to its end. Raises as `open_append_flow` does."""
    asked = APPEND_REVISION in call.metadata
    greeting = append_greeting(WHOLE_TXNS) if asked else b""
    async with open_append_flow(call, directory, limits, greeting) as flow:
        await AppendStream(call.stream, flow, admissions, limits).run()


@dataclass(slots=True)
class _Group:
    """Batches that go to the Appender together, at one `durability`; later their answers.

    `ticks`: how many ticks they take, one for each message.
    """

    verdicts: list[NewBatch | Refusal]
    durability: Durability = Durability.FSYNC
    cost: int = 0
    ticks: int = 0
    answers: list[bytes] | None = None

    def takes(self, verdict: NewBatch | Refusal, cost: int, ticks: int) -> bool:
        if not self.verdicts:
            return True  # a single batch may exceed GROUP_BYTES_MAX
        # The Appender acknowledges a group at one level.
        if isinstance(verdict, NewBatch) and verdict.durability is not self.durability:
            return False
        return self.cost + cost <= GROUP_BYTES_MAX and self.ticks + ticks <= BATCH_MESSAGES_MAX

    def add(self, verdict: NewBatch | Refusal, cost: int, ticks: int) -> None:
        if not self.verdicts and isinstance(verdict, NewBatch):
            self.durability = verdict.durability
        self.verdicts.append(verdict)
        self.cost += cost
        self.ticks += ticks


class AppendStream:
    """A stream after its handshake; batches that arrived together are answered together."""

    def __init__(
        self,
        stream: BatchStream,
        flow: AppendFlow,
        admissions: Admissions,
        limits: EdgeLimits,
    ) -> None:
        self._stream = stream
        self._flow = flow
        self._limits = limits
        self._admissions = admissions
        self._schedules = Schedules(flow.located)
        self._admission = BatchAdmission(
            flow.channel, limits.message_bytes_max, self._schedules, admissions.unpacking
        )
        self._in_order: deque[_Group] = deque()

    async def run(self) -> None:
        """Run until the client half-closes, the pchannel leaves or the server drains."""
        await self._flow.run(self._read_requests)
        self._flow.raise_failure()

    async def _read_requests(self) -> None:
        while frames := await self._stream.read_batch():
            self._flow.turns.begin()
            await self._take(frames)
            self._flow.turns.end()

    async def _take(self, frames: list[bytes]) -> None:
        group = _Group([])
        try:
            for frame in frames:
                await self._flow.turns.next(len(frame))
                verdict = await self._verdict(frame)
                if isinstance(verdict, NoSchedule):
                    verdict = await self._scheduled(frame)
                wait_s = 0.0
                if self._flow.limited and isinstance(verdict, NewBatch):
                    verdict, wait_s = await self._within_limits(verdict)
                if isinstance(verdict, Refusal):
                    self._flow.audit_refused(verdict, _vchannel_of(frame))
                cost, ticks = REQUEST_OVERHEAD_BYTES, 0
                if isinstance(verdict, NewBatch):
                    cost, ticks = cost + verdict.size, ticks_of(verdict)
                # Those before one that has to wait do not wait with it.
                if (wait_s and group.verdicts) or not group.takes(verdict, cost, ticks):
                    # Taken out first: when this wait is cancelled, as on a drain, `finally` would
                    # otherwise append the group a second time.
                    full, group = group, _Group([])
                    await self._append(full)
                if wait_s:
                    await anyio.sleep(wait_s)
                group.add(verdict, cost, ticks)
        finally:
            # A malformed frame ends the stream, but the batches before it are still carried out.
            if group.verdicts:
                await self._append(group)

    async def _within_limits(self, batch: NewBatch) -> tuple[NewBatch | Refusal, float]:
        """The batch, or its refusal for a limit of its collection; and how long it is to wait."""
        taken = await self._flow.charge(batch.vchannel, batch.size, len(batch.sizes))
        return (batch, taken.wait_s) if isinstance(taken, Taken) else (taken, 0.0)

    async def _verdict(self, frame: bytes) -> NewBatch | Refusal:
        if isinstance(frame, Oversize):
            error = FrameTooLarge(self._limits.frame_bytes_max, frame.length)
            return Refusal(StreamingCode.INVALID_ARGUMENT, f"{error}; split the batch")
        batch = scan_append_request(frame)
        # First of all: a name that cannot be one must not get into what is remembered by name.
        if fault := new_vchannel_fault(batch.vchannel, self._flow.channel):
            return Refusal(StreamingCode.INVALID_ARGUMENT, fault)
        if not self._flow.holds(PRODUCE, batch.vchannel):
            lacking = await self._flow.lacking(PRODUCE, batch.vchannel)
            if lacking is not None:
                return lacking
        rows = batch.codec == Codec.ARROW
        refusal = await self._admissions.shards.refusal(
            batch.vchannel, rows=rows, raw=bool(batch.raw)
        )
        # Milvus's collections have ids of their own, which may be equal to one that was dropped.
        milvus = isinstance(refusal, Dropped) and self._flow.has_living_collection(batch.vchannel)
        if refusal is not None and not milvus:
            # What is wrong with the batch itself goes first: its vchannel may be of another stream.
            return self._admission.refusal(batch) or refusal
        if rows:
            return await self._admissions.rows.judge(batch, self._admission)
        if batch.codec != Codec.NONE:
            return await self._admission.judge_packed(batch)
        return self._admission.judge(batch)

    async def _scheduled(self, frame: bytes) -> NewBatch | Refusal:
        """The verdict on the first delayed message of a vchannel, once that has a schedule."""
        vchannel = scan_append_request(frame).vchannel
        return await self._schedules.open(vchannel) or await self._verdict(frame)

    async def _append(self, group: _Group) -> None:
        await self._flow.admit(group.cost, group.cost)
        # Before the append, which may settle at once. Answers have no number: their order tells a
        # client which batch is meant, so they leave in the order of the requests.
        self._in_order.append(group)
        batches = tuple([it for it in group.verdicts if isinstance(it, NewBatch)])

        def settle(outcomes: tuple[RunOutcome, ...]) -> None:
            landed = iter(outcomes)
            group.answers = [
                _answer(it if isinstance(it, Refusal) else next(landed), group.durability)
                for it in group.verdicts
            ]
            group.verdicts.clear()  # bodies of an answered batch are held no longer than needed
            self._answer_in_order()

        if batches:
            self._flow.append(batches, settle, group.durability)
        else:
            settle(())
        await self._flow.wait_for_room()

    def _answer_in_order(self) -> None:
        in_order = self._in_order
        answers: list[bytes] = []
        cost = 0
        while in_order and in_order[0].answers is not None:
            answered = in_order.popleft()
            answers += answered.answers or ()
            cost += answered.cost
        if answers:
            self._flow.answer([frames(answers)], cost)


def _vchannel_of(frame: bytes) -> str:
    return "" if isinstance(frame, Oversize) else scan_append_request(frame).vchannel


def _answer(outcome: RunOutcome, durability: Durability) -> bytes:
    assert not isinstance(outcome, PlacedApart), "a batch is placed whole"
    if isinstance(outcome, Appended):
        return append_landed(outcome.id, outcome.tick, outcome.last_confirmed_id, durability)
    # Tells a producer where to go on after a gap in its sequence numbers.
    expected = outcome.expected if isinstance(outcome, OutOfSequence) else 0
    dropped = isinstance(outcome, Dropped)
    retry_ms = outcome.retry_ms if isinstance(outcome, Throttled) else 0
    return append_refused(outcome.code, outcome.cause, expected, dropped=dropped, retry_ms=retry_ms)
