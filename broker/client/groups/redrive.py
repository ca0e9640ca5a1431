"""Appends dead letters to where they came from again, each once.

It is a member of a group on the dead letters: what it appends and its acknowledgement take effect
together, in a staged batch. So a crash at any step, and a second call beside it, appends no letter
twice and leaves none out.
"""

from collections.abc import (
    AsyncIterable,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Protocol

import anyio

from broker.client.cluster.cursor import Cursor
from broker.client.errors import LeaseLost, NoSuchCursor, NoSuchVChannel, TransactionExpired
from broker.client.groups.dead_letters import DeadLetter, letter_of
from broker.client.groups.group_calls import GroupCalls, NewGroup
from broker.client.groups.leased_batch import LeasedBatch
from broker.client.groups.member import GroupMember
from broker.client.message import Key, Received
from broker.core.groups.group_rules import NAME_LENGTH_MAX, name_refusal
from broker.core.groups.tick_spans import TickSpans
from broker.model.groups.consumer_group import GroupKey, GroupLag, GroupView
from broker.model.ids import TimeTick
from broker.model.named_cursor import ChannelPosition

WAIT_S: Final = 1.0
"""Without a dead letter for so long it looks whether any is left: another member may have some."""

HELD_S: Final = 75.0
"""So long at the least it waits for letters that others hold when it has to leave some.

Longer than a call that dies holds them: a lease and the keepalive of a staged batch, each 30 s.
"""

NAMED_MAX: Final = 10
"""Of the letters that cannot be appended, in the error."""

PREFIX: Final = "redrive."
"""Of the groups that know what was appended again."""
_NOTHING: Final = TickSpans()


class Staging(Protocol):
    """The part of `StagedBatch` that is needed here."""

    async def append(
        self, target: str, payload: bytes, *, key: Key | None = None, properties: Mapping[str, str]
    ) -> object: ...

    async def ack(self, batch: LeasedBatch, messages: Iterable[Received] | None = None) -> None: ...


Staged = Callable[[], AbstractAsyncContextManager[Staging]]


def redrive_group(target: str) -> str:
    """The group on the dead letters that knows which of this target were appended again."""
    name = f"{PREFIX}{target}"
    if name_refusal(name) is None:
        return name
    # Too long, or with letters that a group cannot have: collections may have more.
    return f"{PREFIX}{sha256(target.encode()).hexdigest()}"[:NAME_LENGTH_MAX]


def old_cursor(group: str, target: str) -> str:
    """The cursor by which older releases knew what they had appended again."""
    return f"redrive.{group}.{target}"


async def carry_over(
    cursor: Cursor, calls: GroupCalls, name: str, vchannels: Sequence[str], lease_ms: int
) -> None:
    """Have the group of this name begin behind what an older release has appended again.

    The cursor goes when the group is there on every vchannel: until then a call that is repeated
    finds both, and a group that exists stays as it is.
    """
    try:
        positions = (await cursor.get(measured=False)).positions
    except NoSuchCursor:
        return
    for each in vchannels:
        done = positions.get(each, ChannelPosition(TimeTick(0))).closed
        new = NewGroup(name, lease_ms, ("tick", done + 1), {}, None)
        await calls.create([each], new, exist_ok=True)
    with suppress(NoSuchCursor):  # another call was faster
        await cursor.drop()


async def appended_elsewhere(
    calls: GroupCalls, own: str, places: Sequence[str]
) -> Callable[[DeadLetter], bool]:
    """Whether a letter was appended for another target before: its vchannel, or its collection.

    As the groups on these vchannels of the dead letters say now, but for the `own` one.
    """
    listed = await calls.list_some(places, None, brief=True)
    names = {it.group.key.name for it in listed if it.group.key.name.startswith(PREFIX)} - {own}
    # One by one: a list of all groups leaves ranges out.
    views = [view for name in sorted(names) for view in await calls.list_all(places, name)]
    known = {it.group.key: (it.group.floor, TickSpans(it.group.acked)) for it in views}

    def is_there(letter: DeadLetter) -> bool:
        place, tick = letter.message.vchannel, TimeTick(letter.message.tick)
        for target in (letter.vchannel, letter.origin):
            floor, acked = known.get(GroupKey(place, redrive_group(target)), (0, _NOTHING))
            if tick <= floor or acked.has(tick):
                return True
        return False

    return is_there if known else lambda _: False


class Left(Protocol):
    """Awaited: how much the group of this name has left on the dead letters."""

    def __call__(self) -> Awaitable[Mapping[str, GroupLag]]: ...


class LetterCheck(Protocol):
    """Awaited: which letters are not appended again; it reads all of them."""

    def __call__(self) -> Awaitable["NotAppended"]: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which letters are appended again: those of the target, which has these vchannels now."""

    target: str
    vchannels: Collection[str]
    elsewhere: Callable[[DeadLetter], bool]
    """Whether it was appended for another target: see `appended_elsewhere`."""

    def has(self, letter: DeadLetter) -> bool:
        return letter.vchannel in self.vchannels and not self.elsewhere(letter)

    def lost(self, letter: DeadLetter) -> bool:
        """Whether it is of the target, and where it came from is not: nobody can append it."""
        gone = letter.origin == self.target and letter.vchannel not in self.vchannels
        return gone and not self.elsewhere(letter)


@dataclass(slots=True)
class NotAppended:
    """The letters of a target up to the tick `upto` that its group has not acknowledged.

    `lost`: how many nobody can append; `named`: the first of them. `others`: how many a member or
    a transaction holds, or nobody got yet.
    """

    upto: TimeTick
    lost: int = 0
    named: list[str] = field(default_factory=list)
    others: int = 0


async def not_appended(
    letters: AsyncIterable[Iterable[DeadLetter]],
    views: Iterable[GroupView],
    wanted: Wanted,
    upto: TimeTick,
) -> NotAppended:
    """Compare all letters up to a tick with what the group says on each of their vchannels."""
    known = {it.group.key.vchannel: (it.group.floor, TickSpans(it.group.acked)) for it in views}
    found = NotAppended(upto)
    async for some in letters:
        for letter in some:
            tick = TimeTick(letter.message.tick)
            floor, acked = known.get(letter.message.vchannel, (0, _NOTHING))
            if tick <= floor or acked.has(tick):
                continue
            if wanted.has(letter):
                found.others += 1
            elif wanted.lost(letter):
                found.lost += 1
                if len(found.named) < NAMED_MAX:
                    found.named.append(f"{letter.id} of {letter.vchannel}")
    return found


@dataclass(slots=True)
class _Done:
    """`appended`: how many letters. `has_lost`: whether there are some that nobody can append."""

    appended: int = 0
    has_lost: bool = False


async def redriven(
    joined: GroupMember, left: Left, look: LetterCheck, wanted: Wanted, staged: Staged
) -> int:
    """Append the letters that are wanted again; how many. Raises what a staged batch does.

    NoSuchVChannel when some are from vchannels that the target does not have any more; these are
    not acknowledged, they are left in the group. It says that all others are appended only when
    that is known: another call, or the transaction of one that died, may hold some. It waits for
    them, for HELD_S without a new letter at the least.
    """
    done, pause_s = _Done(), WAIT_S
    async with joined as member:
        quiet_since_s = anyio.current_time()
        look_s = quiet_since_s + pause_s
        while True:
            batch: LeasedBatch | None = None
            with anyio.CancelScope(deadline=look_s):
                batch = await member.__anext__()
            now_s = anyio.current_time()
            if batch is not None:
                # Lost ones come again when their leases end: that is nothing new.
                if await _appended(batch, wanted, staged, done):
                    quiet_since_s, pause_s = now_s, WAIT_S
                    look_s = anyio.current_time() + pause_s
                continue
            if done.has_lost:
                found = await look()
                # Somebody may have sought past them meanwhile.
                done.has_lost = found.lost > 0
                if found.lost and not found.others:
                    raise _left_out(wanted.target, found, done.appended)
                if found.lost and now_s - quiet_since_s >= HELD_S:
                    raise _held(wanted.target, found, done.appended)
                pause_s *= 2
            elif not any(it.messages for it in (await left()).values()):
                return done.appended
            look_s = anyio.current_time() + pause_s


async def _appended(batch: LeasedBatch, wanted: Wanted, staged: Staged, done: _Done) -> bool:
    """Append what is wanted of a batch; whether it had anything but letters that are lost."""
    rest: list[Received] = []
    mine: list[DeadLetter] = []
    for message in batch.messages:
        letter = letter_of(message)
        if letter is not None and wanted.lost(letter):
            done.has_lost = True
            continue
        rest.append(message)
        if letter is not None and wanted.has(letter):
            mine.append(letter)
    if not rest:
        return False
    try:
        async with staged() as out:
            for it in mine:
                message = it.message
                await out.append(
                    it.vchannel, message.payload, key=message.key, properties=it.properties
                )
            await out.ack(batch, None if len(rest) == len(batch) else rest)
    except (LeaseLost, TransactionExpired):
        return True  # so slow was it: nothing of it is stored, and the letters come again
    done.appended += len(mine)
    return True


def _left_out(target: str, found: NotAppended, appended: int) -> NoSuchVChannel:
    return NoSuchVChannel(
        f"{_lost(target, found)}; {appended} others were appended. Append what you need of them"
        f" yourself, `dead` lists them; to leave them out from now on, seek group"
        f' {redrive_group(target)!r} of the dead letters to ("tick", {found.upto + 1})'
    )


def _held(target: str, found: NotAppended, appended: int) -> NoSuchVChannel:
    return NoSuchVChannel(
        f"{_lost(target, found)}; {appended} others were appended, and {found.others} are still to"
        f" be: another redrive holds them, or held them when it died. None came for {HELD_S:g} s;"
        f" run redrive again. Do not seek group {redrive_group(target)!r}: that would leave them"
        " out, too"
    )


def _lost(target: str, found: NotAppended) -> str:
    more = f" and {found.lost - len(found.named)} more" if found.lost > len(found.named) else ""
    return (
        f"{found.lost} dead letters of {target!r} are left, as it does not have their vchannels any"
        f" more (it was dropped, or renamed, and made again): the messages"
        f" {', '.join(found.named)}{more}"
    )
