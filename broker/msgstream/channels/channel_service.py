"""Creates, describes and destroys channels: all of a request or nothing, durable when it returns.

A channel is a collection with one shard, and a record with its owner among the configuration of the
cluster, where several keys change in one step. That step is the commit point: a channel is there
from the moment when the records of its request become READY, and is gone from the moment when they
become DESTROYING. What a call that died has left over is finished by a later call.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import anyio

from broker.client import Client, NoSuchCollection
from broker.client.errors import OutcomeUnknown, TidemarkError
from broker.client.master.cluster_config import ConfigConflict, NoSuchConfigKey
from broker.model.ids import TICK_LOGICAL_BITS
from broker.model.master.live_config import ConfigChange
from broker.msgstream.channels.owned_channels import (
    PREFIX,
    ChannelDescription,
    ChannelRecord,
    ChannelState,
    CreateChannelRequest,
    CreateChannelResponse,
    DescribeChannelRequest,
    DescribeChannelResponse,
    DestroyChannelRequest,
    NoSuchChannel,
    check_request,
    distinct,
    record_of,
)

AT_ONCE: Final = 8
LEFT_OVER_MS: Final = 600_000
"""A call takes less; what is older was left over by one that died."""
UNDO_S: Final = 10.0
CONFLICTS_MAX: Final = 16


class ChannelService:
    """`ChannelService(log)`: the calls of early Milvus's message stream service.

    Every call has the deadlines of the client. Two calls at once are as if one came after the
    other.
    """

    def __init__(self, log: Client, *, left_over_ms: int = LEFT_OVER_MS) -> None:
        self._log = log
        self._left_over_ms = left_over_ms

    async def create_channels(self, request: CreateChannelRequest) -> CreateChannelResponse:
        """Create fresh channels: names that nothing had before. All of them, or none.

        BadTarget for a bad owner or number; InvalidArgument when the cluster holds too many keys.
        OutcomeUnknown when the answer of the last step was lost: then nobody knows their names, and
        what there is of them stays until it is destroyed.
        """
        check_request(request)
        await self._finish_left_over()
        first = await self._log.master.alloc_id(request.num_channels)
        role, now_ms = request.owner_description.role, await self._now_ms()
        records = [
            ChannelRecord(
                f"{role}-{first + index}", request.owner_description, ChannelState.CREATING, now_ms
            )
            for index in range(request.num_channels)
        ]
        revision = await self._store(records)
        try:
            await _all(partial(self._create, it.name) for it in records)
            ready = [replace(it, state=ChannelState.READY, revision=revision) for it in records]
            await self._store(ready)
        except OutcomeUnknown:
            raise
        except BaseException:
            with anyio.CancelScope(shield=True), anyio.move_on_after(UNDO_S):
                await self._remove([replace(it, revision=revision) for it in records])
            raise
        return CreateChannelResponse([it.name for it in records])

    async def destroy_channels(self, request: DestroyChannelRequest) -> None:
        """Destroy channels with their messages and groups: all of them, or none.

        Their readers end with ChannelDestroyed once they have read what was there. NoSuchChannel,
        and nothing was destroyed, when one of them is unknown. After an error the call may be
        repeated: it finishes what it has begun.
        """
        names = distinct(request.channel_names)
        for _ in range(CONFLICTS_MAX):
            records = await self._doomed(names)
            now_ms = await self._now_ms()
            doomed = [replace(it, state=ChannelState.DESTROYING, since_ms=now_ms) for it in records]
            try:
                revision = await self._store(doomed)
            except ConfigConflict:
                continue  # another call has changed one of them: look again
            await self._remove([replace(it, revision=revision) for it in doomed])
            return
        raise TidemarkError(f"other calls keep changing {names[:4]}; try again")

    destory_channels = destroy_channels
    """As the interface of early Milvus spells it."""

    async def describe_channels(self, request: DescribeChannelRequest) -> DescribeChannelResponse:
        """The owner of each channel, in the order of the request. NoSuchChannel for an unknown."""
        found = await self._records(distinct(request.channel_names))
        _check_states(found)
        return DescribeChannelResponse([ChannelDescription(it.name, it.owner) for it in found])

    async def _doomed(self, names: Sequence[str]) -> list[ChannelRecord]:
        """Channels to destroy: all are there, or all are being destroyed by a call before."""
        found = await self._records(names)
        if any(it.state != ChannelState.DESTROYING for it in found):
            _check_states(found)
        return found

    async def _records(self, names: Sequence[str]) -> list[ChannelRecord]:
        try:
            entries = await self._log.config.get([PREFIX + name for name in names])
        except NoSuchConfigKey as error:
            raise NoSuchChannel(f"one of {names[:4]} is no channel: {error.cause}") from None
        return [record_of(it) for it in entries]

    async def _store(self, records: Sequence[ChannelRecord]) -> int:
        """Write all records in one step, each over the revision that was read."""
        changes = [ConfigChange(it.key, it.stored(), it.revision) for it in records]
        return (await self._log.config.apply(changes)).revision

    async def _create(self, name: str) -> None:
        await self._log.collections.create(name, shards=1, exist_ok=True)

    async def _remove(self, records: Sequence[ChannelRecord]) -> None:
        """Drop the collections, then forget the records."""
        await _all(partial(self._drop, it.name) for it in records)
        try:
            await self._log.config.apply(
                [ConfigChange(it.key, None, it.revision) for it in records]
            )
        except (ConfigConflict, NoSuchConfigKey):
            pass  # another call that finished the same has forgotten them

    async def _drop(self, name: str) -> None:
        try:
            await self._log.collections.drop(name)
        except NoSuchCollection:
            pass  # a call before this one has dropped it, or never came to create it

    async def _finish_left_over(self) -> None:
        """Remove channels whose creation or destruction died long ago."""
        before_ms = await self._now_ms() - self._left_over_ms
        entries = await self._log.config.get_by_prefix(PREFIX)
        old = [
            it
            for it in map(record_of, entries)
            if it.state != ChannelState.READY and it.since_ms <= before_ms
        ]
        if old:
            await self._remove(old)

    async def _now_ms(self) -> int:
        return int(await self._log.master.alloc_timestamp()) >> TICK_LOGICAL_BITS


def _check_states(records: Sequence[ChannelRecord]) -> None:
    for it in records:
        if it.state != ChannelState.READY:
            raise NoSuchChannel(f"{it.name} is no channel: it is {it.state.value}")


async def _all(calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Run the calls, a few at once; the first error, without a group round it."""
    errors: list[Exception] = []
    room = anyio.CapacityLimiter(AT_ONCE)

    async def one(call: Callable[[], Awaitable[None]]) -> None:
        async with room:
            if errors:
                return
            try:
                await call()
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(one, call)
    if errors:
        raise errors[0]
