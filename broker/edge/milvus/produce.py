"""Serve one Produce stream: requests in, results out, in the order in which the appends finish.

`broker/edge/rpc/append_flow.py` has the back-pressure and the end of the stream. Payloads are never
decoded. An append that was handed to the Appender is neither retried nor cancelled here: the
Appender carries it out even when nobody reads the result.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import anyio

from broker.core.pressure.rate_limit import RateLimit
from broker.core.pressure.token_bucket import Taken
from broker.edge.milvus.message_admission import MessageAdmission, barrier_wait_s
from broker.edge.milvus.message_rights import CHANGE, acts_on_pchannel, right_for
from broker.edge.milvus.produce_results import produce_answers
from broker.edge.rpc.append_flow import (
    HELD_OVERHEAD_BYTES,
    REQUEST_OVERHEAD_BYTES,
    AppendFlow,
    open_append_flow,
)
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.incoming.stream_turns import REQUEST_BYTES
from broker.edge.rpc.middleware import Call
from broker.edge.rpc.proxies import Proxy
from broker.model.failure import Refusal, StreamingCode, Throttled
from broker.model.ids import TimeTick
from broker.model.message import BODY_TYPES, NewMessage
from broker.node.appender_messages import RunOutcome
from broker.transport import BatchStream
from schemas.encoding.frames import frames as framed
from schemas.encoding.oversize import FrameTooLarge, Oversize
from schemas.generated.milvus.proto.streaming import (
    CloseProducerResponse,
    CreateProducerResponse,
    ProduceResponse,
)
from schemas.wire import (
    ScannedRun,
    TooManyProperties,
    produce_error,
    produce_rate_limit,
    request_id_at,
    scan_produce_request,
    scan_produce_requests,
)

BATCH_MESSAGES_MAX: Final = 256
"""Small enough that the next batch is read while the first one syncs."""
BATCH_BYTES: Final = 256 * 1024

CLOSE: Final = bytes(ProduceResponse(close=CloseProducerResponse()))


async def serve_produce(call: Call, directory: Proxy, wal_name: str, limits: EdgeLimits) -> None:
    """Serve one stream from its handshake to its end. Refused as `open_append_flow` refuses."""
    created = bytes(ProduceResponse(create=CreateProducerResponse(wal_name=wal_name)))
    async with open_append_flow(call, directory, limits, created) as flow:
        await ProduceStream(call.stream, flow, limits).run()


class ProduceStream:
    """A stream after its handshake; requests that arrived together are appended together."""

    def __init__(self, stream: BatchStream, flow: AppendFlow, limits: EdgeLimits) -> None:
        self._stream = stream
        self._flow = flow
        self._limits = limits
        self._admission = MessageAdmission(flow.channel, limits.message_bytes_max)

    async def run(self) -> None:
        """Run until the client half-closes, the pchannel leaves or the server drains."""
        self._flow.tell_limits(_limit_told)
        # As in Milvus: all results, then `close`, then the status with the reason.
        await self._flow.run(self._read_requests)
        await self._stream.write_batch([CLOSE], deadline_s=self._limits.flush_s)
        self._flow.raise_failure()

    async def _read_requests(self) -> None:
        turns = self._flow.turns
        while frames := await self._stream.read_batch():
            turns.begin()
            for part, size_bytes in _parts(frames):
                await turns.next(size_bytes + len(part) * REQUEST_BYTES)
                await self._take(part)
            turns.end()

    async def _take(self, frames: list[bytes]) -> None:
        requests: list[_Request] = []
        refused: list[bytes] = []
        at = 0
        try:
            while at < len(frames):
                runs, at = scan_produce_requests(frames, at)
                for run in runs:
                    lacking = None if may_append(self._flow, run) else await self._lacking(run)
                    if lacking is None:
                        self._judge(run, requests, refused)
                    else:
                        code, cause = lacking.code, lacking.cause
                        self._flow.audit_refused(lacking, run.facts.vchannel)
                        refused += [produce_error(it, code, cause) for it in run.request_ids]
                if at < len(frames):
                    # Not a request: refused alone if it has too much, else this raises Malformed.
                    refused.append(self._refused(frames[at]))
                    at += 1
        finally:
            # A malformed frame ends the stream, but the requests before it are still carried out.
            if refused:
                # Counted too: a peer that sends bad requests and reads nothing must wait.
                cost = len(refused) * REQUEST_OVERHEAD_BYTES
                self._flow.count(cost)
                self._flow.answer([framed(refused)], cost)
            if requests and self._flow.limited:
                requests = await self._within_limits(requests)
            await self._append_admitted(requests)
        await self._flow.wait_for_room()

    async def _lacking(self, run: ScannedRun) -> Refusal | None:
        """Why the caller may not append the run."""
        right, flow = right_for(run.facts.type), self._flow
        lacking = await flow.lacking(right, run.facts.vchannel)
        if lacking is None and right is CHANGE and acts_on_pchannel(run):
            return await flow.lacking(right, "")
        return lacking

    async def _within_limits(self, requests: "list[_Request]") -> "list[_Request]":
        """Those within the limits of their collections, once they may go on; refuse the others."""
        within: list[_Request] = []
        refused: list[bytes] = []
        wait_s = 0.0
        for it in requests:
            taken: Taken | Throttled = Taken(0.0)
            if it.message.type in BODY_TYPES:
                size = it.message.size
                taken = await self._flow.charge(it.message.vchannel, size, len(it.request_ids))
            if isinstance(taken, Taken):
                wait_s = max(wait_s, taken.wait_s)
                within.append(it)
            else:
                self._flow.audit_refused(taken, it.message.vchannel)
                refused += [produce_error(each, taken.code, taken.cause) for each in it.request_ids]
        if refused:
            cost = len(refused) * REQUEST_OVERHEAD_BYTES
            self._flow.count(cost)
            self._flow.answer([framed(refused)], cost)
        if wait_s:
            await anyio.sleep(wait_s)
        return within

    def _judge(self, run: ScannedRun, requests: "list[_Request]", refused: list[bytes]) -> None:
        """Add the run to `requests`, or each of its messages to where it belongs."""
        if not self._flow.has_collection(run.facts.vchannel):
            whole = self._admission.judge_run(run)
            if whole is not None:
                requests.append(_Request(run.request_ids, whole))
                return
        for request_id, message in zip(run.request_ids, run.messages(), strict=True):
            verdict = self._admission.judge(message)
            if isinstance(verdict, Refusal):
                self._flow.audit_refused(verdict, run.facts.vchannel)
                refused.append(produce_error(request_id, verdict.code, verdict.cause))
            elif verdict.barrier_tick and not self._flow.passed(TimeTick(verdict.barrier_tick)):
                requests.append(_Request((request_id,), verdict, waits=True))
            else:
                requests.append(_Request((request_id,), verdict))

    def _refused(self, frame: bytes) -> bytes:
        """The refusal of a frame that has too much. Raises Malformed for another one."""
        if isinstance(frame, Oversize):
            return self._too_large(frame)
        try:
            scan_produce_request(frame)
        except TooManyProperties as error:
            request_id = request_id_at(frame)
            if request_id is None:
                raise
            return produce_error(request_id, StreamingCode.INVALID_ARGUMENT, error.what)
        raise AssertionError("a frame that was not scanned among others is not malformed")

    def _too_large(self, frame: Oversize) -> bytes:
        request_id = request_id_at(frame)
        error = FrameTooLarge(self._limits.frame_bytes_max, frame.length)
        if request_id is None:
            # Without its number the request cannot be refused alone.
            raise error
        return produce_error(request_id, StreamingCode.UNRECOVERABLE, f"{error}; split the message")

    def _append_later(self, request_id: int, message: NewMessage) -> None:
        """Append a message whose barrier tick may be ahead of the oracle."""
        cost = message.size + HELD_OVERHEAD_BYTES
        self._flow.count(cost)

        def settle(outcomes: tuple[RunOutcome, ...]) -> None:
            self._flow.answer([produce_answers((request_id,), message, outcomes[0])], cost)

        within_s = barrier_wait_s(message)
        if isinstance(within_s, Refusal):
            settle((within_s,))
        else:
            self._flow.append_later(message, settle, within_s)

    async def _append_admitted(self, requests: "list[_Request]") -> None:
        now: list[_Request] = []
        for it in requests:
            if it.waits:
                self._append_later(it.request_ids[0], it.message)
            else:
                now.append(it)
        if now:
            await self._flow.admit(sum([it.message.size for it in now]), _cost(now))
            self._append(now)

    def _append(self, requests: "list[_Request]") -> None:
        """Append what was admitted."""

        def settle(outcomes: tuple[RunOutcome, ...]) -> None:
            answers = [
                produce_answers(request.request_ids, request.message, outcome)
                for request, outcome in zip(requests, outcomes, strict=True)
            ]
            self._flow.answer(answers, _cost(requests))

        self._flow.append(tuple([it.message for it in requests]), settle)


def may_append(flow: AppendFlow, run: ScannedRun) -> bool:
    """Whether the stream has appended such messages before, and still may; else it is decided."""
    right = right_for(run.facts.type)
    return right is not CHANGE and flow.holds(right, run.facts.vchannel)


def _limit_told(limit: RateLimit) -> bytes:
    return framed([produce_rate_limit(int(limit.state), limit.bytes_s)])


def _parts(frames: list[bytes]) -> Iterator[tuple[list[bytes], int]]:
    """Frames that are taken together, with their size."""
    part: list[bytes] = []
    size_bytes = 0
    for frame in frames:
        part.append(frame)
        size_bytes += len(frame)
        if len(part) == BATCH_MESSAGES_MAX or size_bytes >= BATCH_BYTES:
            yield part, size_bytes
            part, size_bytes = [], 0
    if part:
        yield part, size_bytes


class _Request(NamedTuple):
    """A message or a run to append, with the request id of each message.

    `waits`: for its barrier tick, which is ahead of the oracle.
    """

    request_ids: Sequence[int]
    message: NewMessage
    waits: bool = False


def _cost(requests: Iterable[_Request]) -> int:
    """What is counted as unanswered for these."""
    return sum([it.message.size + len(it.request_ids) * REQUEST_OVERHEAD_BYTES for it in requests])
