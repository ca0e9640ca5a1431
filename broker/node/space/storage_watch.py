"""Finds every second which collections have reached their limit of storage.

The vchannels that this node serves are counted in memory (`size_reader.py` reads what was stored
before). What of it changes by a share of the limit is told to the other nodes through the metadata
store, and their figures are read when any has changed. So every node knows the whole collection,
also one that has just started, and that is still reading its log.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import anyio
import structlog

from actors import Actor, Context, Envelope, Request
from broker.core.naming import is_control_channel, pchannel_of
from broker.core.pressure.limit_rules import LimitRules, name_without_collection
from broker.core.pressure.storage_use import (
    LimitedCollection,
    StorageUse,
    limited_collections,
    uses_of,
    worth_telling,
)
from broker.core.space.figures_here import figures_here
from broker.model.channel import AccessMode
from broker.model.failure import Refused
from broker.model.ids import PChannelName
from broker.node.space.given_back import ANSWER_S
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel
from broker.ports.row_schemas import NoShard
from broker.ports.space.collection_sizes import NamedShards, ToldSizes

LOOK_S: Final = 1.0
TELL_S: Final = 10.0
"""So often others are told whatever has changed, however little."""
ASKED_MAX: Final = 100
"""Vchannels of no known collection that are looked up at one look."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WatchStorage(Request[None]):
    """A timer."""


class StorageWatch(Actor[WatchStorage]):
    """See the module."""

    _context: Context[WatchStorage]

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._shards = NamedShards()
        self._told = ToldSizes(-1)
        self._named: set[str] = set()
        """Vchannels of the collections that the catalog has."""
        self._asked: set[str] = set()
        """Others, of which it was asked whether it has had a collection for them."""
        self._others: dict[tuple[str, str], list[str]] = {}
        """Those for which it has had none, by the id in their name."""
        self._limited: list[LimitedCollection] = []
        self._ruled: LimitRules | None = None
        """The limits by which `_limited` was found; None: again."""
        self._watching = False
        self._told_s = 0.0
        self._failures = 0
        self._error = ""

    async def started(self, context: Context[WatchStorage]) -> None:
        """Look at once, by what was told before, and every second."""
        self._context = context
        context.after(0.0, WatchStorage())
        context.on_beat(LOOK_S, WatchStorage())

    async def receive(self, batch: Sequence[Envelope[WatchStorage]]) -> None:
        """Look once, however many timers are due."""
        try:
            await self._look()
            self._error = ""
        except (Refused, TimeoutError) as error:
            self._failed(str(error) or "no answer")
        for envelope in batch:
            envelope.reply(None)

    def statistics(self) -> Mapping[str, int | float | str]:
        """Collections with a limit of storage, those beyond it, and why figures are not told."""
        now = self._node.storage.now
        return {
            "collections": len(now.uses),
            "over": sum([it.is_over for it in now.uses]),
            "failures": self._failures,
            **({"error": self._error} if self._error else {}),
        }

    async def _look(self) -> None:
        """Raises Refused or TimeoutError when others are not heard; then the last stays true."""
        rules = self._node.limits.storage
        if not rules.storage and not self._watching:
            return
        self._watching = True
        served = {it.channel.name: it for it in self._node.open_channels.all() if _counts(it)}
        failure = await self._refresh(served)
        self._limit(rules)
        self._want(rules, served)
        own = figures_here(self._told.bytes, {name: it.sizes for name, it in served.items()})
        sizes = {**self._told.bytes, **own}
        uses = [it.use(sizes) for it in self._limited]
        self._node.storage.now = uses_of(uses)
        if failure is not None:
            raise failure
        await self._tell(uses, served, own)
        # Not before: the others have forgotten what this node told.
        self._watching = bool(rules.storage)

    async def _refresh(
        self, served: Mapping[PChannelName, OpenChannel]
    ) -> Refused | TimeoutError | None:
        try:
            with anyio.fail_after(ANSWER_S):
                shards = await self._node.sizes.shards(self._shards.revision)
                if shards is not None:
                    self._adopt(shards)
                told = await self._node.sizes.newer(self._told.revision)
                self._told = self._told if told is None else told
                await self._ask_for_others(served)
        except (Refused, TimeoutError) as error:
            return error
        return None

    def _adopt(self, shards: NamedShards) -> None:
        self._shards, self._ruled = shards, None
        self._named = {it for its in shards.vchannels.values() for it in its}
        self._keep_others(lambda it: it not in self._named)

    def _keep_others(self, keeps: Callable[[str], bool]) -> None:
        kept = {key: [it for it in its if keeps(it)] for key, its in self._others.items()}
        self._others = {key: its for key, its in kept.items() if its}

    async def _ask_for_others(self, served: Mapping[PChannelName, OpenChannel]) -> None:
        """Of which vchannels the catalog has had no collection. Raises Refused."""
        stored = {name for it in served.values() for name in it.sizes.vchannels()}
        there = stored | {*self._told.bytes}
        if not self._asked <= there:  # else those of long ago would pile up
            self._asked &= there
            self._keep_others(self._asked.__contains__)
            self._ruled = None
        for vchannel in sorted(there - self._named - self._asked)[:ASKED_MAX]:
            found = await self._node.catalog.shard(vchannel)
            if not isinstance(found, NoShard):
                continue  # created since; the next look has its name
            self._asked.add(vchannel)
            if found is NoShard.OTHER and not is_control_channel(vchannel):
                key = "", name_without_collection(vchannel)
                self._others.setdefault(key, []).append(vchannel)
                self._ruled = None

    def _limit(self, rules: LimitRules) -> None:
        """Find the collections with a limit, when these or the limits have changed."""
        if self._ruled is not rules:
            named = {**self._others, **self._shards.vchannels}
            self._limited = limited_collections(rules, named)
            self._ruled = rules

    def _want(self, rules: LimitRules, served: Mapping[PChannelName, OpenChannel]) -> None:
        """Have those logs counted in which a collection with a limit may store something."""
        limited = rules.storage
        exact = {it.name for it in limited if not it.name.endswith("*")}
        found = {name for _, name in self._shards.vchannels if name in exact}
        everywhere = len(found) < len(limited)
        wanted = {pchannel_of(vchannel) for it in self._limited for vchannel in it.vchannels}
        for name, channel in served.items():
            sizes = channel.sizes
            sizes.wanted = everywhere or name in wanted
            if not sizes.wanted:
                sizes.stop()
                continue
            sizes.look(channel.log.segments(), channel.log.bounds().first_id)
            for purge in channel.purges.all():
                sizes.purged(purge.vchannel, purge.next_id)

    async def _tell(
        self,
        uses: Sequence[StorageUse],
        served: Mapping[PChannelName, OpenChannel],
        own: Mapping[str, int],
    ) -> None:
        """Raises Refused, TimeoutError."""
        now_s, told = self._context.clock.monotonic_s(), self._told.bytes
        all_of_it = now_s - self._told_s >= TELL_S
        figures: dict[str, int] = {}
        for use in uses:
            mine = [it for it in use.bytes if it in own]
            figures |= worth_telling(use, told, mine, everything=all_of_it)
        gone = self._gone(uses, served)
        if figures or gone:
            with anyio.fail_after(ANSWER_S):
                await self._node.sizes.tell(figures, gone)
            left = {it: size for it, size in told.items() if it not in {*gone}}
            self._told = replace(self._told, bytes=left | figures)
        if all_of_it:
            self._told_s = now_s

    def _gone(
        self, uses: Sequence[StorageUse], served: Mapping[PChannelName, OpenChannel]
    ) -> list[str]:
        """What was told of vchannels here that have no limit, as far as that is known.

        Of one of which nobody was asked yet the figure stays: it counts until the log is read.
        """
        limited = {it for use in uses for it in use.bytes}
        here = [it for it in self._told.bytes if it not in limited and pchannel_of(it) in served]
        if not self._node.limits.storage.storage:
            return here
        return [it for it in here if it in self._named or it in self._asked]

    def _failed(self, why: str) -> None:
        self._failures += 1
        if why != self._error:
            log.warning("what collections store is not told to other nodes now", error=why)
        self._error = why


def _counts(channel: OpenChannel) -> bool:
    return channel.channel.access is AccessMode.READ_WRITE
