"""The records of the leader: its term, who it is, and its renewals.

`leader` has the term, as in earlier releases. `leader/holder` is written with it, and names the
process. `leader/renewed` is written again and again while the leader runs; `leader/ended` with the
term when it has stopped.
"""

from dataclasses import dataclass, replace
from typing import Any

from broker.coordinator.json_records import decode_fields, encode_fields
from broker.coordinator.records import decode_number, encode_number
from broker.ports.leader_check import Candidate
from broker.ports.meta import MetaStore, get_many

LEADER_KEY = "leader"
HOLDER_KEY = "leader/holder"
RENEWED_KEY = "leader/renewed"
ENDED_KEY = "leader/ended"


@dataclass(frozen=True, slots=True)
class LeaderSeen:
    """The records as they were read. `term` 0: nobody ever led."""

    term: int = 0
    revision: int = 0
    renewed: int = 0
    """The revision of the newest renewal; it says nothing but that there was one."""
    holder: Candidate = Candidate("", "")
    """Empty for a leader that recorded nothing of itself."""
    lease_s: float = 0.0
    ended: bool = False
    """It has said so, and does nothing more."""


async def read_leader(store: MetaStore) -> LeaderSeen:
    """The leader as the store has it now. Raises MetaError."""
    keys = (LEADER_KEY, HOLDER_KEY, RENEWED_KEY, ENDED_KEY)
    entry, held, renewed, over = await get_many(store, keys)
    if entry is None:
        return LeaderSeen()
    term = decode_number(LEADER_KEY, entry.value)
    ended = over is not None and decode_number(ENDED_KEY, over.value) == term
    seen = LeaderSeen(term, entry.revision, renewed.revision if renewed else 0, ended=ended)
    if held is None:
        return seen
    of_term, holder, lease_s = _decode_holder(held.value)
    # Else of an earlier leader: a later one recorded nothing of itself.
    if of_term != term:
        return seen
    return replace(seen, holder=holder, lease_s=lease_s)


def leader_puts(term: int, holder: Candidate, lease_s: float) -> dict[str, bytes]:
    """What a new leader writes beside its term."""
    fields = {"term": term, "name": holder.name, "address": holder.address, "lease_s": lease_s}
    return {HOLDER_KEY: encode_fields(fields), **renewal_puts(0)}


def renewal_puts(number: int) -> dict[str, bytes]:
    """What a leader writes to renew its lease."""
    return {RENEWED_KEY: encode_number(number)}


def ended_puts(term: int) -> dict[str, bytes]:
    """What a leader writes as its last record."""
    return {ENDED_KEY: encode_number(term)}


def _decode_holder(value: bytes) -> tuple[int, Candidate, float]:
    def parse(fields: dict[str, Any]) -> tuple[int, Candidate, float]:
        holder = Candidate(str(fields["name"]), str(fields["address"]))
        return int(fields["term"]), holder, float(fields["lease_s"])

    return decode_fields(HOLDER_KEY, value, parse)
