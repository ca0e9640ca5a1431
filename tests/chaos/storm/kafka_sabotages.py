"""Bugs of the log in Kafka that storms and races must notice: each takes a look away."""

from collections.abc import Iterable, Sequence
from typing import Any

from broker.wal.kafka import topic_scan
from broker.wal.kafka.entries import EntryHead
from broker.wal.kafka.fence import counts
from broker.wal.kafka.kafka_writer import KafkaWriter

Patch = tuple[Any, str, Any]


def acks_past_a_gap() -> Sequence[Patch]:
    """What others wrote before a group is not read: a newer claim may lie there."""
    return [(KafkaWriter, "_pass_gap", lambda *_: None)]


def reads_behind_a_claim() -> Sequence[Patch]:
    """An entry counts whatever newer owner began before it; copies of a retry still do not."""

    def of_own_term(head: EntryHead, between: Iterable[EntryHead]) -> bool:
        return counts(head, [it for it in between if it.term <= head.term])

    return [(topic_scan, "counts", of_own_term)]
