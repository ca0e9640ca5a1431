"""How much one micro-batch may hold: what Spark asks for, beside what the options say.

Next: broker/spark/source/next_cut.py
"""

from dataclasses import dataclass, replace

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from broker.spark.refusals import BadLimit
from broker.spark.source.source_options import Options


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """0 where there is none. A micro-batch has at least one tick, however many rows that has."""

    rows_max: int = 0
    bytes_max: int = 0
    rows_min: int = 0


def limits_of(limit: ReadLimit, options: Options) -> TriggerLimits:
    """What Spark asks for, and beside that the options' own. Raises BadLimit.

    Only where Spark asks for all that is there, it gets that.
    """
    own = TriggerLimits(options.rows_max, options.bytes_max, options.rows_min)
    match limit:
        case ReadAllAvailable():
            return TriggerLimits()
        case ReadMaxRows(rows):
            return replace(own, rows_max=rows)
        case ReadMaxBytes(size):
            return replace(own, bytes_max=size)
        case ReadMinRows(rows):
            return replace(own, rows_min=rows)
        case _:
            raise BadLimit(f"{limit} is no limit for a log: use rows or bytes")


def default_limit(options: Options) -> ReadLimit:
    """One of the options' limits; Spark has none for several, so `limits_of` adds the others."""
    if options.rows_max:
        return ReadMaxRows(options.rows_max)
    if options.bytes_max:
        return ReadMaxBytes(options.bytes_max)
    if options.rows_min:
        return ReadMinRows(options.rows_min)
    return ReadAllAvailable()
