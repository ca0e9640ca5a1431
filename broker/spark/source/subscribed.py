"""What a query subscribes to: its vchannels, its columns, and where it starts.

Next: broker/spark/gateway.py
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from broker.client import Collection, Cut, InvalidArgument
from broker.core.naming import collection_id_of
from broker.model.ids import MessageId, TimeTick
from broker.spark.gateway import Gateway
from broker.spark.refusals import BadOption
from broker.spark.source import columns, message_rows
from broker.spark.source.bounds import At, Bound
from broker.spark.source.cut_offsets import check_subscription, to_cut
from broker.spark.source.source_options import Options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from broker.client import Measurement


def declared(options: Options) -> "StructType":
    """Return the schema of a query with these options. Raises BadOption and BadColumns."""
    gateway = Gateway(options.server, options.cluster)
    try:
        found = _columns(gateway, options.subscribe)
    finally:
        gateway.close()
    if found is None:
        return message_rows.declared(options.columns, include_properties=options.include_properties)
    return columns.declared(found, options.columns)


class Subscribed:
    """The subscription of a query; the broker is asked when it is first needed.

    May be pickled before and after that; each process connects by itself.
    """

    def __init__(self, options: Options, declared: "StructType") -> None:
        self.options = options
        self.gateway = Gateway(options.server, options.cluster)
        self._declared = declared
        self._measured: Measurement | None = None

    @cached_property
    def names(self) -> Mapping[str, Sequence[str]]:
        """Each name with its vchannels in shard order."""
        return self.gateway.subscription(self.options.subscribe)

    @cached_property
    def vchannels(self) -> list[str]:
        """All vchannels, each once."""
        return list(dict.fromkeys(one for each in self.names.values() for one in each))

    @cached_property
    def shape(self) -> "columns.RowShape | message_rows.MessageShape":
        """How messages become the rows that the query declared. Raises BadColumns."""
        found = _columns(self.gateway, self.options.subscribe)
        if found is not None:
            return columns.RowShape(found, self._declared)
        by_vchannel = {
            one: name for name, each in self.names.items() for one in each if one != name
        }
        return message_rows.MessageShape(by_vchannel, self._declared)

    def cut_of(self, offset: Mapping[str, Any]) -> Cut:
        """Return the cut of an offset of this query. Raises BadCheckpoint."""
        cut = to_cut(offset)
        check_subscription(cut, self.vchannels)
        return cut

    def newest(self) -> Cut:
        """Return a cut behind everything that was acknowledged before the call."""
        return self.gateway.cut(self.vchannels)

    def measure(
        self, start: Cut, until: TimeTick, *, rows_max: int = 0, bytes_max: int = 0
    ) -> "Measurement":
        """Count what lies behind a cut up to a tick; 0 is no limit."""
        self._measured = self.gateway.measure(
            list(start.ends), start.tick, until, rows_max=rows_max, bytes_max=bytes_max
        )
        return self._measured

    def between(self, start: Cut, end: Cut) -> "Measurement":
        """Return what lies between two cuts; already known when `end` was just chosen."""
        known, span = self._measured, (start.tick, end.tick)
        if known is None or (known.after, known.choice.tick) != span:
            return self.measure(start, end.tick)
        return known

    def at(self, bound: Bound) -> Cut:
        """Return the cut that a bound means now. Raises BadOption for one in the future."""
        if bound == "latest":
            return self.newest()
        # Tick 0 is below every message, so no cut has to be taken.
        if not isinstance(bound, At) or bound.tick == 0:
            held = self.gateway.held(self.vchannels)
            return Cut(TimeTick(0), {name: MessageId(it.first_id) for name, it in held.items()})
        try:
            return self.gateway.cut(self.vchannels, bound.tick)
        except InvalidArgument as error:
            raise BadOption(bound.option, bound.text, f"it is in the future: {error}") from error


def _columns(gateway: Gateway, subscribe: Sequence[str]) -> "pa.Schema | None":
    """Return the schema of the one subscribed collection; None for messages."""
    known = gateway.collections()
    of_names = {name: _collection(known, name) for name in subscribe}
    with_rows = {it.name for it in of_names.values() if it is not None and it.schema is not None}
    if not with_rows:
        return None
    if {it and it.name for it in of_names.values()} != with_rows or len(with_rows) > 1:
        advice = f"{sorted(with_rows)} have schemas; read each with a query of its own"
        raise BadOption("subscribe", ",".join(subscribe), advice)
    return gateway.columns(with_rows.pop())


def _collection(known: Sequence[Collection], name: str) -> Collection | None:
    """Return the collection of this name, or of this vchannel."""
    number = collection_id_of(name)
    return next((it for it in known if it.name == name or it.id == number), None)
