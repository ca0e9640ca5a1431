"""One incarnation of an actor as seen from outside: address, mailbox, callers, watchers, end.

It guarantees that nobody waits for a dead actor. It never runs the actor's code.
"""

from collections.abc import Callable
from dataclasses import dataclass

from actors.beats import Beats
from actors.clock import Alarm, Clock
from actors.envelope import Envelope, Failure, Promise
from actors.errors import ActorDied, ActorError, StaleTerm
from actors.exit import Exit
from actors.mailbox import Mailbox, MailboxSpec


@dataclass(frozen=True, slots=True)
class Terminated:
    """Sent to a watcher once: the incarnation has ended and none of its code runs any more."""

    path: str
    term: int
    reason: Exit


class Incarnation:
    """Path and term, the mailbox, and everybody who waits for it."""

    __slots__ = (
        "beats", "clock", "exit", "mailbox", "newest_term", "over", "path", "promises", "term",
        "timers", "watchers", "watching",
    )  # fmt: skip

    def __init__(
        self,
        path: str,
        term: int,
        mailbox: MailboxSpec,
        clock: Clock,
        newest: Callable[[], int],
        beats: Beats | None = None,
    ) -> None:
        """`beats`: those of the System; None for an incarnation apart from any."""
        self.path = path
        self.term = term
        self.mailbox = Mailbox(mailbox)
        self.clock = clock
        self.beats = beats or Beats(clock)
        self.newest_term = newest
        self.exit: Exit | None = None
        self.over = False
        self.promises: dict[Promise, None] = {}
        self.timers: dict[Alarm, None] = {}
        self.watchers: set[Incarnation] = set()
        self.watching: set[Incarnation] = set()

    def refusal(self) -> ActorError:
        """The error for senders to this ended incarnation."""
        assert self.exit is not None
        newest = self.newest_term()
        if newest > self.term:
            return StaleTerm(self.path, self.term, newest)
        return ActorDied(self.path, self.term, self.exit)

    def watch(self, other: "Incarnation") -> None:
        """Get Terminated once `other` is over, at once if it is; no-op if this one has ended."""
        if self.exit is not None:
            return
        if other.over:
            self.learn(other)
        else:
            other.watchers.add(self)
            self.watching.add(other)

    def die(self, exit: Exit) -> None:
        """Refuse new messages and answer all waiting callers; the first reason is kept."""
        if self.exit is not None:
            return
        self.exit = exit
        self.mailbox.clear()
        for timer in tuple(self.timers):
            timer.cancel()
        for other in self.watching:
            other.watchers.discard(self)
        self.watching.clear()
        promises = tuple(self.promises)
        self.promises.clear()
        for promise in promises:
            # It is answered already if its caller has not run since, to remove it.
            if not promise.done():
                promise.set_result(Failure(ActorDied(self.path, self.term, exit)))

    def bury(self) -> None:
        """Notify the watchers: none of its code runs any more."""
        self.over = True
        # Sorted, because the order of a set differs between runs: seeded tests must repeat.
        watchers = sorted(self.watchers, key=lambda watcher: (watcher.path, watcher.term))
        self.watchers.clear()
        for watcher in watchers:
            watcher.watching.discard(self)
            watcher.learn(self)

    def learn(self, other: "Incarnation") -> None:
        """Queue Terminated for a watched incarnation that is over."""
        assert other.exit is not None
        self.mailbox.put_event(Envelope(Terminated(other.path, other.term, other.exit)))
