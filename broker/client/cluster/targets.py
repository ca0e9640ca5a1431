"""Resolves the name that a program uses to vchannels: a collection's shards, or one channel.

Names are cached, so that an append costs no look-up: the shards of a collection never change while
it exists, and a channel that exists does not go away. The server refuses appends to the vchannels
of a dropped collection; then, and when this client drops one, the names are looked up again.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence

import anyio

from broker.client.cluster.retrying import retried
from broker.client.errors import BadTarget, SchemaVersionMismatch, TidemarkError
from broker.client.lifetime import ClientLifetime
from broker.client.message import Key, Message
from broker.core.naming import is_physical, pchannel_of
from broker.core.sharding import shard_of
from broker.model.ids import PChannelName, VChannelName
from broker.model.message import MessageType

LOOK_UPS_MAX = 8
"""Of one name, when drops during the look-up make its answer outdated."""
_DATA = frozenset({MessageType.INSERT, MessageType.DELETE})


class NewVChannel(str):
    """A vchannel that need not exist yet; its first message makes it, as in Milvus.

        await log.append(NewVChannel("by-dev-rootcoord-dml_0_7v0"), b"first")

    A plain name must be that of a vchannel that exists, so that a typing error is an error.
    """

    __slots__ = ()


class Shards:
    """The vchannels of one target, and the rule that spreads rows over them.

    `rows_of`: the collection with a schema that they belong to, which takes rows only. `broad`: a
    channel that is no vchannel, which takes no data. `raw`: the vchannel need not exist.
    """

    def __init__(
        self,
        collection: str | None,
        vchannels: tuple[VChannelName, ...],
        *,
        rows_of: str | None = None,
        broad: str = "",
        raw: bool = False,
    ) -> None:
        self.collection = collection
        self.vchannels = vchannels
        self.rows_of = rows_of
        self.raw = raw
        self._broad = broad
        self._open = rows_of is None and not broad
        self._turn = 0

    def choose(self, key: Key | None) -> VChannelName:
        """The vchannel of a row: by the hash of its key, in turns when it has none."""
        if key is not None:
            return self.vchannels[shard_of(key, len(self.vchannels))]
        self._turn = (self._turn + 1) % len(self.vchannels)
        return self.vchannels[self._turn]

    def choose_for(self, message: Message) -> VChannelName:
        """The vchannel of a message. Raises as `check_takes`."""
        if not self._open:
            self.check_takes(message.type)
        return self.choose(message.key)

    def places(self, messages: Sequence[Message]) -> dict[VChannelName, Sequence[int]]:
        """The indexes of the messages for each vchannel. Raises as `check_takes`."""
        if not messages:
            return {}
        if len(self.vchannels) == 1:
            for kind in {message.type for message in messages}:
                self.check_takes(kind)
            return {self.vchannels[0]: range(len(messages))}
        places: dict[VChannelName, list[int]] = {}
        for index, message in enumerate(messages):
            places.setdefault(self.choose_for(message), []).append(index)
        return {**places}

    def choose_for_batch(self, target: str, *, keyed: bool) -> VChannelName:
        """The vchannel of a batch, in turns. BadTarget for keys when there are several vchannels.

        A batch lies on one vchannel, so its keys could not choose the shard of each row. Raises as
        `check_takes` too.
        """
        self.check_takes(MessageType.INSERT)
        if keyed and len(self.vchannels) > 1:
            raise BadTarget(
                f"{target!r} has {len(self.vchannels)} vchannels, and a batch with keys needs one:"
                " name a vchannel, or use append_messages"
            )
        return self.choose(None)

    def check_takes(self, kind: int) -> None:
        """Raise unless messages of this type may be appended here.

        SchemaVersionMismatch for data of a collection with a schema, which takes rows only, because
        readers of rows would not see it. BadTarget for data on a channel that is no vchannel.
        """
        if self._open or kind not in _DATA:
            return
        self.check_narrow()
        raise SchemaVersionMismatch(
            f"collection {self.rows_of!r} has a schema and takes rows, not messages: use"
            " append_arrow, or `tidemark produce --format`"
        )

    def check_narrow(self) -> None:
        """Raise BadTarget for a pchannel and for the control channel."""
        if self._broad:
            name = self.vchannels[0]
            raise BadTarget(
                f"{name!r} is {self._broad}, which takes no data: name a collection or a vchannel,"
                " or use raw_append"
            )


def merged(found: Sequence[Shards]) -> Shards:
    """The vchannels of all of them, each once; the result belongs to no single collection."""
    if len(found) == 1:
        return found[0]
    return Shards(None, tuple(dict.fromkeys(name for it in found for name in it.vchannels)))


class Targets:
    """Resolves names to vchannels. Every method raises ClosedClient or ForkedClient."""

    def __init__(
        self,
        look_up: Callable[[str], Awaitable[Shards]],
        lifetime: ClientLifetime,
        *,
        deadline_s: float,
    ) -> None:
        """`look_up` asks the server; raises NoSuchCollection, NoSuchVChannel."""
        self._look_up = look_up
        self._deadline_s = deadline_s
        self._lifetime = lifetime
        self._known: dict[str, Shards] = {}
        self._asking: dict[str, anyio.Event] = {}
        self._forgotten = 0

    def known(self, name: str) -> Shards | None:
        """What `resolve` would return without asking the server, if it is cached."""
        self._lifetime.check_new()
        return self._known.get(name)

    async def resolve(self, name: str, within_s: float | None = None) -> Shards:
        """The vchannels of a collection, or a channel by its own name.

        A server that is away is asked again for `within_s`, by default the deadline of a call.
        Raises NoSuchCollection, and NoSuchVChannel for a channel that nothing has named.
        """
        found = self.known(name)
        if found is not None:
            return found
        return await retried(lambda: self._asked_once(name), within_s or self._deadline_s)

    async def current(self, name: str) -> Shards:
        """As `resolve`, but a collection is looked up anew: it may have been dropped and recreated.

        What is cached counts while the server cannot be asked.
        """
        cached = self.known(name)
        if cached is None:
            return await self.resolve(name)
        if cached.collection is None:
            return cached
        try:
            return await self._asked(name)
        except TidemarkError as error:
            if error.retriable:
                return cached
            raise

    async def resolve_all(self, targets: str | Iterable[str]) -> Shards:
        """The vchannels of one or more targets, each once. Raises as `resolve`."""
        return merged([await self.resolve(name) for name in self.names(targets)])

    async def only_vchannel(self, target: str) -> Shards:
        """The target, which must have one vchannel; BadTarget when it has several."""
        shards = await self.resolve(target)
        shards.check_narrow()
        if len(shards.vchannels) != 1:
            raise BadTarget(
                f"{target!r} has {len(shards.vchannels)} vchannels, and a transaction needs one:"
                " name a vchannel (`log.collections.get(name)` lists them)"
            )
        return shards

    def vchannel(self, name: str) -> Shards:
        """Exactly this vchannel, without a look-up."""
        self._lifetime.check_new()
        return Shards(None, (VChannelName(name),), raw=True)

    def names(self, targets: str | Iterable[str]) -> list[str]:
        """The targets as a list."""
        self._lifetime.check_new()
        return [targets] if isinstance(targets, str) else list(targets)

    def forget(self, name: str) -> None:
        """Ask the server again next time."""
        self._forgotten += 1
        self._known.pop(name, None)

    def forget_all(self) -> None:
        """Ask the server again about every name."""
        self._forgotten += 1
        self._known.clear()

    async def _asked_once(self, name: str) -> Shards:
        """Ask, or share the answer of a task that asks already: many tasks begin together."""
        while (asking := self._asking.get(name)) is not None:
            await asking.wait()
            found = self._known.get(name)
            if found is not None:
                return found
            # That task failed or was cancelled. The first that comes here asks, the others wait.
        asking = self._asking[name] = anyio.Event()
        try:
            return await self._asked(name)
        finally:
            del self._asking[name]
            asking.set()

    async def _asked(self, name: str) -> Shards:
        if isinstance(name, NewVChannel):
            found = self._known[name] = self.vchannel(name)
            return found
        for _ in range(LOOK_UPS_MAX):
            before = self._forgotten
            found = await self._look_up(name)
            # A drop during the look-up: its answer may be that of before the drop.
            if before == self._forgotten:
                self._known[name] = found
                break
        return found


def split(channel: str) -> tuple[PChannelName, VChannelName]:
    """A channel as (pchannel, vchannel); the vchannel of a pchannel's own name is empty: all."""
    vchannel = VChannelName("" if is_physical(channel) else channel)
    return pchannel_of(channel), vchannel
