"""The collections and vchannels that a query names or that match its pattern; their columns."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from broker.client import Collection
from broker.core.naming import collection_id_of
from broker.model.ids import TICK_LOGICAL_BITS, TimeTick
from broker.spark.gateway import Gateway
from broker.spark.refusals import BadOption
from broker.spark.source import columns, message_rows
from broker.spark.source.bounds import Each, Start
from broker.spark.source.source_options import Options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

TICK_AGE_MS = 10_000
"""A collection is created at a tick. A node may give out a tick that it has had a little longer."""


class NamedCollections:
    """What a query reads, as of the last look; the broker is asked when it is first needed."""

    def __init__(self, gateway: Gateway, options: Options) -> None:
        self._gateway = gateway
        self._options = options
        self._found: _Found | None = None

    @property
    def vchannels(self) -> list[str]:
        """All vchannels, each once."""
        names = self._look().names
        return list(dict.fromkeys(one for each in names.values() for one in each))

    @property
    def collections(self) -> dict[str, str]:
        """The collection of each vchannel, without those that were named themselves."""
        names = self._look().names
        return {one: name for name, each in names.items() for one in each if one != name}

    def with_columns(self, vchannel: str) -> str | None:
        """Return the collection of a vchannel when it has a schema, else None."""
        found = self._collection(vchannel)
        return None if found is None or found.schema is None else found.name

    def columns_of(self, vchannel: str) -> "pa.Schema | None":
        """Return the newest schema of the collection of a vchannel; None for messages."""
        name = self.with_columns(vchannel)
        return None if name is None else self._gateway.columns(name)

    def created_after(self, vchannel: str) -> TimeTick:
        """Return a tick that is below every message of the collection of a vchannel."""
        found = self._collection(vchannel)
        return TimeTick(max(0, found.created_ms - TICK_AGE_MS) << TICK_LOGICAL_BITS if found else 0)

    def look_again(self) -> bool:
        """Ask the broker again; return whether other collections match than before."""
        before = None if self._found is None else self._found.names
        self._found = None
        return self._look().names != before

    def declared(self) -> "StructType":
        """Return the schema of a query: the one that all collections agree on.

        Raises BadOption for collections that differ, and BadColumns.
        """
        options = self._options
        kinds: dict[str, Any] = {}
        for name, vchannels in self._look().names.items():
            schema = self.columns_of(vchannels[0])
            if schema is None:
                kinds[name] = message_rows.declared(
                    options.columns, include_properties=options.include_properties
                )
            else:
                kinds[name] = columns.declared(schema, options.columns)
        first, kind = next(iter(kinds.items()))
        others = [name for name, it in kinds.items() if it != kind]
        if others:
            raise BadOption(
                "subscribePattern" if options.pattern else "subscribe",
                options.pattern or ",".join(options.subscribe),
                f"{first} and {others[0]} have other columns; read each with a query of its own, or"
                " choose equal ones with option columns",
            )
        return kind  # type: ignore[no-any-return]

    def starts(self, each: Each) -> dict[str, Start]:
        """Return the start of every vchannel. Raises BadOption unless each is given once."""
        found: dict[str, Start] = {}
        names = self._look().names
        for name, start in each.starts.items():
            mine = names.get(name, [name] if name in self.vchannels else [])
            twice = [one for one in mine if one in found]
            if not mine or twice:
                problem = (
                    f"gives {twice[0]} twice" if twice else f"names {name!r}, which is not read"
                )
                raise BadOption("startingOffsets", each.text, f"it {problem}")
            found |= dict.fromkeys(mine, start)
        missing = [name for name in self.vchannels if name not in found]
        if missing:
            advice = f"it has no start for {missing[:8]}; give one for each vchannel or collection"
            raise BadOption("startingOffsets", each.text, advice)
        return found

    def _look(self) -> "_Found":
        if self._found is None:
            known = self._gateway.collections()
            pattern = self._options.pattern
            if pattern:
                names: dict[str, Sequence[str]] = {
                    it.name: it.vchannels for it in known if re.fullmatch(pattern, it.name)
                }
                if not names:
                    some = ", ".join(it.name for it in known[:8]) or "none"
                    advice = f"no collection matches; there are: {some}"
                    raise BadOption("subscribePattern", pattern, advice)
            else:
                names = {**self._gateway.subscription(self._options.subscribe)}
            self._found = _Found(names, known)
        return self._found

    def _collection(self, vchannel: str) -> Collection | None:
        number = collection_id_of(vchannel)
        return next((it for it in self._look().known if it.id == number), None)


class _Found:
    """`names`: each name with its vchannels in shard order. `known`: all collections."""

    def __init__(self, names: Mapping[str, Sequence[str]], known: list[Collection]) -> None:
        self.names = names
        self.known = known
