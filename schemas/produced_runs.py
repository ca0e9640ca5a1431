"""Scans many produce requests in one call, and gathers those that a log can take together.

A loop over messages outside of this room would cost more than their scan.
"""

from typing import Final

from schemas.encoding.oversize import Oversize
from schemas.encoding.varint import Malformed
from schemas.scan import (
    ScannedMessage,
    ScannedProduce,
    facts_of,
    payload_at,
    scan_produce_request,
    stored_with,
    usual_request,
)

RUN_BYTES_MAX: Final = 256 * 1024
"""Of stored forms; a longer message is a run alone."""

_ROWS: Final = (2, 3)
"""Insert and Delete."""


class ScannedRun:
    """Inserts or Deletes of one version and vchannel, in the order in which they came.

    Any other message is a run alone, and so is one of a transaction, with a barrier tick, or with a
    property that producers must not send (`_bh`, `_rh`).
    """

    __slots__ = ("bodies", "facts", "request_ids", "sizes", "stored_bytes")

    def __init__(self, facts: ScannedMessage) -> None:
        self.facts = facts
        """What is true of all messages, and the stored form and size of none."""
        self.request_ids: list[int] = []
        self.bodies: list[bytes] = []
        """Their stored forms."""
        self.sizes: list[int] = []
        self.stored_bytes = 0

    def messages(self) -> list[ScannedMessage]:
        """Each message on its own."""
        return [
            self.facts._replace(stored=body, size=size)
            for body, size in zip(self.bodies, self.sizes, strict=True)
        ]


def scan_produce_requests(frames: list[bytes], first: int) -> tuple[list[ScannedRun], int]:
    """Scan from `frames[first]` on: the runs, and the index of the frame where it stopped.

    It stops at the end, at an Oversize, and at a frame that `scan_produce_request` raises for.
    Runs are in the order of their first message; messages of one vchannel keep their order.
    Requests that are not appends are skipped, as Milvus skips them.
    """
    runs: list[ScannedRun] = []
    growing: dict[str, ScannedRun] = {}
    for index in range(first, len(frames)):
        frame = frames[index]
        if isinstance(frame, Oversize):
            return runs, index
        try:
            request_id, facts, body, size = _scanned(frame)
        except Malformed:
            return runs, index
        if facts is None:
            continue
        run = growing.get(facts.vchannel)
        if (
            run is None
            or (facts is not run.facts and not _alike(facts, run.facts))
            or run.stored_bytes + len(body) > RUN_BYTES_MAX
        ):
            run = ScannedRun(facts)
            runs.append(run)
            if _joins(facts):
                growing[facts.vchannel] = run
            else:
                # It may concern all vchannels: no later message may go before it.
                growing.clear()
        run.request_ids.append(request_id)
        run.bodies.append(body)
        run.sizes.append(size)
        run.stored_bytes += len(body)
    return runs, len(frames)


def _scanned(frame: bytes) -> tuple[int, ScannedMessage | None, bytes, int]:
    """Request id, facts, stored form and size; no facts when it is not an append."""
    request_id, start = usual_request(frame)
    if start:
        end = len(frame)
        payload, stop = payload_at(frame, start, end)
        facts = facts_of(frame[stop:end])
        if facts is not None:
            if payload == stop:
                return request_id, facts, facts.stored, facts.size
            size = stop - payload + facts.size
            return request_id, facts, stored_with(frame[payload:stop], facts), size
    request = scan_produce_request(frame)
    if isinstance(request, ScannedProduce):
        message = request.message
        return request.request_id, message, message.stored, message.size
    return 0, None, b"", 0


def _joins(facts: ScannedMessage) -> bool:
    return (
        facts.type in _ROWS
        and facts.txn is None
        and not facts.barrier_tick
        and not facts.broadcast
        and not facts.replicate
    )


def _alike(facts: ScannedMessage, others: ScannedMessage) -> bool:
    """Whether a message belongs to a run of others of its vchannel."""
    return (
        facts.type == others.type
        and facts.version == others.version
        and facts.has_header == others.has_header
        and _joins(facts)
    )
