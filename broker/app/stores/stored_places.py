"""Where the log of each pchannel lies, in the metadata, and how a switch of it goes on.

Nothing is cached: the owner of a pchannel reads its place after it has taken its term, and a place
changes only with the term at which that was read. So an owner of before cannot change it any more.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from broker.app.stores.log_place import (
    channel_key,
    decode_alter,
    decode_channel,
    encode_alter,
    encode_channel,
)
from broker.coordinator.records import (
    ALTER_KEY,
    CLUSTER_KEY,
    NODE_PREFIX,
    PCHANNEL_PREFIX,
    decode_cluster,
    decode_member,
    decode_pchannel,
    pchannel_key,
)
from broker.core.cluster.wal_alter import (
    Alter,
    AlterRefusal,
    AlterStage,
    ChannelAlter,
    Task,
    aborted,
    advanced,
    begun,
    of,
    place_of,
    task_of,
)
from broker.model.ids import NodeId, PChannelName, Term
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import MetaEntry, MetaError, MetaStore, get_many
from broker.ports.meta_writes import all_entries

Change = Callable[[ChannelAlter], ChannelAlter]


class Overtaken(MetaError):
    """The switch is in another stage by now, or the pchannel has a newer owner."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A switch, with the part of every pchannel of the cluster."""

    alter: Alter | None
    channels: Mapping[PChannelName, ChannelAlter]


class StoredPlaces:
    """`founded`: where the log is of a cluster that never switched.

    Every call may raise MetaError.
    """

    def __init__(self, store: MetaStore, founded: str) -> None:
        self._store, self.founded = store, founded
        self._targets: dict[str, int] = {}

    async def alter(self) -> Alter | None:
        """The newest switch; None: there never was one."""
        return self._noted(_alter(await self._store.get(ALTER_KEY)))

    def newest_to(self, place: str) -> int:
        """The number of the newest switch to a place that was read here; 0: there was none."""
        return self._targets.get(place, 0)

    async def place(self, name: PChannelName) -> str:
        """Where the log of a pchannel takes appends."""
        return (await self.opening(name))[0]

    async def opening(self, name: PChannelName) -> tuple[str, bool]:
        """The same, and whether it is to be copied, so that nothing may be removed of it."""
        found = await get_many(self._store, (ALTER_KEY, channel_key(name)))
        alter, channel = self._noted(_alter(found[0])), _channel(name, found[1])
        moves = task_of(alter, channel) in (Task.COPY, Task.SWITCH)
        return place_of(alter, channel, self.founded), moves

    async def channel(self, name: PChannelName, alter: Alter) -> ChannelAlter:
        """The part of a pchannel in a switch."""
        return of(alter, _channel(name, await self._store.get(channel_key(name))))

    async def change(
        self, name: PChannelName, term: Term, stage: AlterStage, transition: Change
    ) -> ChannelAlter:
        """Record what the owner at `term` has done in this stage. Raises Overtaken."""
        owner, key = pchannel_key(name), channel_key(name)

        async def attempt() -> ChannelAlter:
            keys = (ALTER_KEY, key, owner)
            found = await get_many(self._store, keys)
            alter = _alter(found[0])
            owned = found[2] is not None and decode_pchannel(owner, found[2].value).term == term
            if alter is None or alter.stage is not stage or not owned:
                raise Overtaken
            before = of(alter, _channel(name, found[1]))
            after = transition(before)
            if after != before:
                expect = {it: _revision(entry) for it, entry in zip(keys, found, strict=True)}
                await self._store.write({key: encode_channel(after)}, expect=expect)
            return after

        return await retry_conflicts(key, attempt)

    async def refusal(self, target: str) -> AlterRefusal | None:
        """Why a switch to this place would be refused now."""
        decided = begun(await self.alter(), self.founded, target, leaves_history=False)
        return decided if isinstance(decided, AlterRefusal) else None

    async def begin(self, target: str, *, leaves_history: bool) -> Alter | AlterRefusal:
        """Begin a switch, unless it is refused."""
        return await self._decide(
            lambda alter: begun(alter, self.founded, target, leaves_history=leaves_history)
        )

    async def abort(self) -> Alter | AlterRefusal:
        """Turn back a switch, unless it is too late."""
        return await self._decide(aborted)

    async def advance(self) -> Alter | None:
        """Enter the next stage if all pchannels are through with this one."""

        async def attempt() -> Alter | None:
            entry = await self._store.get(ALTER_KEY)
            alter = _alter(entry)
            if entry is None or alter is None or alter.ended:
                return alter
            cluster = await self._store.get(CLUSTER_KEY)
            channels = await self._channels(cluster)
            after = advanced(alter, channels, channels)
            # An older node that registered meanwhile may get a pchannel, and look in the source.
            if after.stage is AlterStage.SWITCHING and await self.older_nodes():
                return alter
            if after is not alter:
                # What a pchannel has done in a stage is not undone, so a late answer is as true.
                expect = {ALTER_KEY: entry.revision, CLUSTER_KEY: _revision(cluster)}
                await self._store.write({ALTER_KEY: encode_alter(after)}, expect=expect)
            return after

        return await retry_conflicts(ALTER_KEY, attempt)

    async def older_nodes(self) -> Sequence[NodeId]:
        """The nodes of the cluster that know no switches."""
        members = [
            decode_member(key, entry.value)
            async for key, entry in all_entries(self._store, NODE_PREFIX)
        ]
        return [it.node for it in members if not it.knows_places]

    async def progress(self) -> Progress:
        """The newest switch and how far it is."""
        alter = await self.alter()
        if alter is None:
            return Progress(None, {})
        found = await self._channels(await self._store.get(CLUSTER_KEY))
        return Progress(alter, {name: of(alter, it) for name, it in found.items()})

    def _noted(self, alter: Alter | None) -> Alter | None:
        if alter is not None:
            self._targets[alter.target] = alter.number
        return alter

    async def _decide(
        self, decide: Callable[[Alter | None], Alter | AlterRefusal]
    ) -> Alter | AlterRefusal:
        async def attempt() -> Alter | AlterRefusal:
            entry = await self._store.get(ALTER_KEY)
            decided = decide(_alter(entry))
            if isinstance(decided, Alter):
                expect = {ALTER_KEY: _revision(entry)}
                await self._store.write({ALTER_KEY: encode_alter(decided)}, expect=expect)
            return decided

        return await retry_conflicts(ALTER_KEY, attempt)

    async def _channels(
        self, cluster: MetaEntry | None
    ) -> Mapping[PChannelName, ChannelAlter | None]:
        """Of every pchannel of the cluster; also those that were never assigned, which may be
        opened at any time."""
        recorded = [
            PChannelName(key.removeprefix(PCHANNEL_PREFIX))
            async for key, _ in all_entries(self._store, PCHANNEL_PREFIX)
        ]
        names = sorted({*recorded, *_pchannels(cluster)})
        entries: Sequence[MetaEntry | None] = await get_many(
            self._store, [channel_key(it) for it in names]
        )
        return {name: _channel(name, it) for name, it in zip(names, entries, strict=True)}


def _alter(entry: MetaEntry | None) -> Alter | None:
    return None if entry is None else decode_alter(entry.value)


def _channel(name: PChannelName, entry: MetaEntry | None) -> ChannelAlter | None:
    return None if entry is None else decode_channel(channel_key(name), entry.value)


def _pchannels(cluster: MetaEntry | None) -> Sequence[PChannelName]:
    return () if cluster is None else decode_cluster(CLUSTER_KEY, cluster.value).pchannels


def _revision(entry: MetaEntry | None) -> int:
    return 0 if entry is None else entry.revision
