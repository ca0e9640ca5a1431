"""How much one micro-batch may hold: the limit of Spark, combined with those of the options."""

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
    """Limits of one micro-batch; 0 is no limit. A micro-batch has at least one tick, however many
    rows.
    """

    rows_max: int = 0
    bytes_max: int = 0
    rows_min: int = 0


def limits_of(limit: ReadLimit, options: Options) -> TriggerLimits:
    """Combine the limit of Spark with those of the options. Raises BadLimit.

    When Spark asks for everything available, the options' limits do not apply.
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
            raise BadLimit(f"{limit} is not supported: limit a micro-batch by rows or bytes")


def default_limit(options: Options) -> ReadLimit:
    """Return one of the options' limits. Spark takes a single one; `limits_of` adds the others."""
    if options.rows_max:
        return ReadMaxRows(options.rows_max)
    if options.bytes_max:
        return ReadMaxBytes(options.bytes_max)
    if options.rows_min:
        return ReadMinRows(options.rows_min)
    return ReadAllAvailable()
