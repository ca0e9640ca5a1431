"""A member's place in a Group, from its join on; given up whenever and however its stream ends.

The Group may have taken the member although its stream broke before the answer came: a member of
whom nobody knows would keep the group from being sought or dropped, for ever.
"""

from asyncio import get_running_loop
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from actors import ActorDied, ActorError, MailboxFull, Ref, StaleTerm
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.groups.consumer_group import GroupKey
from broker.node.group_messages import GroupJoined, GroupMessage, JoinGroup, LeaveGroup

JOIN_S: Final = 10.0
JOIN_TRIES: Final = 20
JOIN_PAUSE_S: Final = 0.05
LATE_S: Final = 600.0
"""So long after the question an answer is still heard, for the sake of leaving."""
LEAVE_AGAIN_S: Final = 0.05

FindGroup = Callable[[GroupKey], Awaitable[Ref[GroupMessage]]]


class MemberPlace:
    """Of one stream. Call `leave` in any case, also when `join` was cancelled."""

    def __init__(self, find: FindGroup, key: GroupKey, name: str, identity: str = "") -> None:
        self._find = find
        self._key = key
        self._name = name
        self._identity = identity
        self._place: tuple[Ref[GroupMessage], int] | None = None
        self._left = False

    async def join(self) -> tuple[Ref[GroupMessage], GroupJoined]:
        """Become a member. Raises Refused."""
        for _ in range(JOIN_TRIES):
            group = await self._find(self._key)
            answer = await self._asked(group)
            if isinstance(answer, GroupJoined):
                return group, answer
            if isinstance(answer, Refusal):
                raise Refused(answer.code, answer.cause)
            if not isinstance(answer, ActorDied | StaleTerm):
                raise Refused(StreamingCode.INNER, f"{self._named} does not answer; retry")
            # It ended because nobody used it, just now.
            await anyio.sleep(JOIN_PAUSE_S)
        raise Refused(StreamingCode.INNER, f"{self._named} starts and ends again; retry")

    def leave(self) -> None:
        """Be no member any more, whenever the Group hears of it; may be called again."""
        self._left = True
        place, self._place = self._place, None
        if place is not None:
            _leave(*place)

    @property
    def _named(self) -> str:
        return f"group {self._key.name!r} on {self._key.vchannel}"

    async def _asked(self, group: Ref[GroupMessage]) -> GroupJoined | Refusal | Exception | None:
        """The answer; None when there was none in time."""
        answers: list[GroupJoined | Refusal | Exception] = []
        came = anyio.Event()

        def answered(answer: GroupJoined | Refusal | Exception) -> None:
            if isinstance(answer, GroupJoined):
                self._place = group, answer.member
                # Nobody has waited for it: the stream broke, or the answer came late.
                if self._left:
                    self.leave()
            answers.append(answer)
            came.set()

        try:
            group.ask_then(JoinGroup(self._name, self._identity), answered, deadline_s=LATE_S)
        except ActorError as error:
            return error
        with anyio.move_on_after(JOIN_S):
            await came.wait()
        return answers[0] if answers else None


def _leave(group: Ref[GroupMessage], member: int) -> None:
    try:
        group.tell(LeaveGroup(member))
    except MailboxFull:
        get_running_loop().call_later(LEAVE_AGAIN_S, _leave, group, member)
    except ActorError:
        return  # its members ended with it
