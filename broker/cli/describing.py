"""`tidemark describe NAME`: gathers what the broker knows about whatever has that name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any, Final

import anyio

from broker.cli.session import with_client
from broker.client import Client, Collection, TidemarkError
from broker.client.cluster import ActorInfo, ChannelInfo, CursorView
from broker.client.errors import BadTarget
from broker.core.naming import is_physical, pchannel_of

COUNT_S: Final = 3.0
"""To count messages, whose heads are read from the log; without an answer they are left out."""
TICK_LOGICAL_BITS: Final = 18
Facts = dict[str, Any]


def describe(server: str, name: str) -> dict[str, Facts]:
    """The facts of everything of that name, by kind: collection, cursor, pchannel, vchannel.

    Ends the program when nothing has the name.
    """

    async def ask(client: Client) -> dict[str, Facts]:
        return await (await _look(client)).facts(name)

    return with_client(server, ask)


async def _look(client: Client) -> "_Broker":
    channels = await client.admin.channels()
    collections = await client.collections.list()
    cursors = await client.cursors.list(measured=False)
    actors = await client.admin.actors()
    return _Broker(client, {it.name: it for it in channels}, collections, cursors, actors)


@dataclass(frozen=True, slots=True)
class _Broker:
    """What is known of a broker at one moment."""

    client: Client
    channels: Mapping[str, ChannelInfo]
    collections: Sequence[Collection]
    cursors: Sequence[CursorView]
    actors: Sequence[ActorInfo]

    async def facts(self, name: str) -> dict[str, Facts]:
        found: dict[str, Facts] = {}
        for collection in self.collections:
            if collection.name == name:
                found["collection"] = await self._collection(collection)
        for cursor in self.cursors:
            if cursor.name == name:
                found["cursor"] = await self._cursor(cursor)
        if name in self.channels:
            found["pchannel"] = self._pchannel(self.channels[name])
        elif self._is_vchannel(name):
            found["vchannel"] = await self._vchannel(name)
        if not found:
            raise BadTarget(self._nothing(name))
        return found

    def _is_vchannel(self, name: str) -> bool:
        pchannel = self.channels.get(pchannel_of(name)) if not is_physical(name) else None
        return pchannel is not None and (
            name in pchannel.vchannels or any(name in it.vchannels for it in self.collections)
        )

    def _nothing(self, name: str) -> str:
        known = [*[it.name for it in self.collections], *[it.name for it in self.cursors]]
        known += [*self.channels, *[name for it in self.collections for name in it.vchannels]]
        near = get_close_matches(name, known, n=1)
        advice = f"; did you mean {near[0]!r}?" if near else ""
        return f"there is no collection, channel or cursor {name!r}{advice}"

    async def _collection(self, collection: Collection) -> Facts:
        counts = await self._counts(collection.vchannels)
        shards = [self._shard(name, counts) for name in collection.vchannels]
        return {
            "name": collection.name,
            "id": collection.id,
            "created_ms": collection.created_ms,
            **_total(counts),
            "schema": await self._schema(collection),
            "shards": shards,
            "cursors": self._cursors_of(collection.vchannels),
            **self._held(map(pchannel_of, collection.vchannels)),
        }

    def _shard(self, name: str, counts: Mapping[str, tuple[int, int]] | None) -> Facts:
        rows, size = counts[name] if counts is not None else (None, None)
        return {
            "vchannel": name,
            "messages": rows,
            "stored_bytes": size,
            **self._owner(pchannel_of(name)),
            "readers": self._readers(pchannel_of(name), name),
        }

    def _owner(self, pchannel: str) -> Facts:
        it = self.channels.get(pchannel)
        if it is None:
            return {"state": "unknown"}
        return {
            "state": it.state,
            "node": it.node_id,
            "address": it.address,
            "term": it.term,
            "closed_tick": it.closed_tick,
            "closed_ms": it.closed_tick >> TICK_LOGICAL_BITS,
        }

    async def _schema(self, collection: Collection) -> Facts | None:
        if collection.schema is None:
            return None
        try:
            schema = await self.client.collections.schema(collection.name)
        except ImportError:  # no pyarrow here
            schema = None
        columns = [{"column": it.name, "type": str(it.type)} for it in schema or ()]
        return {"version": collection.schema.version, "columns": columns}

    async def _vchannel(self, name: str) -> Facts:
        counts = await self._counts([name])
        owners = [it for it in self.collections if name in {*it.vchannels}]
        return {
            "name": name,
            "collection": owners[0].name if owners else None,
            "shard": [str(it) for it in owners[0].vchannels].index(name) if owners else None,
            "pchannel": pchannel_of(name),
            **{key: it for key, it in self._shard(name, counts).items() if key != "vchannel"},
            "cursors": self._cursors_of([name]),
            **self._held([pchannel_of(name)]),
        }

    def _pchannel(self, channel: ChannelInfo) -> Facts:
        facts = asdict(channel)
        facts["vchannels"] = [{"vchannel": it} for it in channel.vchannels]
        facts["readers"] = self._readers(channel.name)
        named = [it for it in self.collections if set(it.vchannels) & set(channel.vchannels)]
        facts["collections"] = [{"collection": it.name} for it in named]
        facts["cursors"] = self._cursors_of([channel.name, *channel.vchannels])
        return facts | self._held([channel.name])

    async def _cursor(self, cursor: CursorView) -> Facts:
        cursor = await self.client.cursor(cursor.name).get()
        read = [it.name for it in self.collections if set(it.vchannels) & set(cursor.channels)]
        return {
            "name": cursor.name,
            "tick": cursor.tick,
            "processed_ms": cursor.tick >> TICK_LOGICAL_BITS,
            "moved_ms": cursor.moved_ms,
            "lag_ms": cursor.lag_ms,
            "behind_ms": cursor.behind_ms if cursor.closed_tick else None,
            "messages_behind": cursor.rows_behind,
            "bytes_behind": cursor.bytes_behind,
            "collections": [{"collection": it} for it in read],
            "channels": [
                {"channel": it, **self._owner(pchannel_of(it))} for it in sorted(cursor.channels)
            ],
            **self._held(map(pchannel_of, cursor.channels), ("cursor", cursor.name)),
        }

    def _cursors_of(self, channels: Iterable[str]) -> list[Facts]:
        wanted = {*channels}
        return [
            {
                "cursor": it.name,
                "tick": it.tick,
                "lag_ms": it.lag_ms,
                "behind_ms": it.behind_ms if it.closed_tick else None,
            }
            for it in self.cursors
            if wanted & {*it.channels}
        ]

    def _held(self, pchannels: Iterable[str], only: tuple[str, str] | None = None) -> Facts:
        """Who holds back retention on these pchannels, and who was passed; `only` this one."""
        known = [self.channels[it] for it in dict.fromkeys(pchannels) if it in self.channels]
        holders = [
            {
                "holder": f"{it.kind} {it.name}",
                "pchannel": it.pchannel,
                "held_bytes": it.bytes,
                "bytes_max": it.bytes_max,
                "until_ms": it.until_ms,
            }
            for channel in known
            for it in channel.holders
            if only in (None, (it.kind, it.name))
        ]
        passed = [
            {
                "passed": f"{it.kind} {it.name}",
                "pchannel": it.pchannel,
                "cause": it.cause,
                "held_bytes": it.bytes,
                "removed_tick": it.removed_tick,
                "passed_ms": it.passed_ms,
            }
            for channel in known
            for it in channel.passed
            if only in (None, (it.kind, it.name))
        ]
        return {"holders": holders, "passed": passed}

    def _readers(self, pchannel: str, vchannel: str = "") -> int:
        """Open readers; one that reads several vchannels counts for each of the pchannel."""
        place = f"/channels/{pchannel}/log/scanners/"
        reads = [it.extra.get("vchannel", "") for it in self.actors if place in it.path]
        return sum(not vchannel or it in ("", vchannel) for it in reads)

    async def _counts(self, channels: Sequence[str]) -> dict[str, tuple[int, int]] | None:
        """Messages and bytes of each channel; None when it takes too long or cannot be asked."""
        known = [self.channels.get(pchannel_of(it)) for it in channels]
        until = min([it.closed_tick if it else 0 for it in known], default=0)
        if not until:
            return None
        with anyio.move_on_after(COUNT_S):
            try:
                found = await self.client.measure(channels, after=0, until=until)
            except TidemarkError:
                return None
            # Steps are cumulative.
            last = {name: steps[-1] for name, steps in found.steps.items() if steps}
            return {
                name: (last[name].rows, last[name].bytes) if name in last else (0, 0)
                for name in channels
            }
        return None


def _total(counts: Mapping[str, tuple[int, int]] | None) -> Facts:
    if counts is None:
        return {"messages": None, "stored_bytes": None}
    return {
        "messages": sum(rows for rows, _ in counts.values()),
        "stored_bytes": sum(size for _, size in counts.values()),
    }
