"""What one open call may do; asked by the services that decide inside of a stream."""

from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from functools import partial
from typing import Final

from broker.core.naming import VCHANNEL_NAME_LENGTH_MAX
from broker.core.security.access_book import AccessBook, AccessDecision, Origin, Principal
from broker.core.security.grants import SEE, Action, Resource, ResourceKind
from broker.edge.rpc.access.collection_names import CollectionNames
from broker.model.failure import Refusal, Refused, StreamingCode

HELD_MAX: Final = 65_536
"""Different things that one call may use; a client that names more opens another stream."""

Actions = frozenset[Action]
Sight = Callable[[Resource], bool]
"""Whether a list shows a thing."""
OBSERVE: Final = frozenset({Action.OBSERVE})


def everything(_: Resource) -> bool:
    """The sight of who sees all."""
    return True


async def nothing_newer() -> None:
    """Of a server that follows no stored book."""


class Access:
    """One for each call that has a principal. What it was allowed is decided again later."""

    __slots__ = ("_book", "_held", "_names", "_newest", "end", "principal")

    def __init__(
        self,
        principal: Principal | None = None,
        book: Callable[[], AccessBook] | None = None,
        names: CollectionNames | None = None,
        newest: Callable[[], Awaitable[None]] = nothing_newer,
    ) -> None:
        """Without arguments everything is allowed, as long as access is not controlled.

        `newest` is waited for before anything is refused: it may bring a newer book.
        """
        self.principal = principal
        self._book = book
        self._names = names
        self._newest = newest
        self._held: set[tuple[Actions, Resource | str]] = set()
        self.end: Callable[[Refusal], None] = _ignore
        """Called when the call must not go on."""

    @property
    def controlled(self) -> bool:
        """Whether anything may be denied."""
        return self._book is not None

    @property
    def name(self) -> str:
        """Who calls; empty when nobody was asked to prove it."""
        return "" if self.principal is None else self.principal.name

    @property
    def of_process(self) -> bool:
        """Whether another process of the cluster calls."""
        return self.principal is not None and self.principal.origin is Origin.PROCESS

    async def need(self, actions: Actions, resources: Iterable[Resource]) -> None:
        """Raise Refused(PERMISSION_DENIED) unless one of the actions is allowed on each."""
        for resource in resources:
            if not await self._allowed(actions, resource):
                raise Refused(*denied(self.name, actions, resource))

    async def need_channel(self, actions: Actions, channel: str) -> None:
        """The same for a channel, by its name or its collection's."""
        if not self.holds(actions, channel):
            refusal = await self.refusal(actions, channel)
            if refusal is not None:
                raise Refused(refusal.code, refusal.cause)

    async def refusal(self, actions: Actions, channel: str) -> Refusal | None:
        """Why the channel may not be used so; None if it may."""
        if self._names is None:
            return None
        if len(channel) > VCHANNEL_NAME_LENGTH_MAX:
            # It is kept while the call is open, and so are thousands of others.
            cause = f"the name of a channel has at most {VCHANNEL_NAME_LENGTH_MAX} characters"
            return Refusal(StreamingCode.INVALID_ARGUMENT, f"{cause}, not {len(channel)}")
        resource = await self._names.channel(channel)
        if not await self._allowed(actions, resource):
            return Refusal(*denied(self.name, actions, resource))
        if len(self._held) > HELD_MAX:
            cause = f"one call may use {HELD_MAX} channels; open another stream"
            return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
        self._held.add((actions, channel))
        return None

    def holds(self, actions: Actions, channel: str) -> bool:
        """Whether this was allowed before, and still is: the check of each batch of a stream."""
        return self._book is None or (actions, channel) in self._held

    def allows(self, actions: Actions, resource: Resource) -> bool:
        """Whether one of the actions is allowed; what is, is decided again after a change."""
        if self._book is None:
            return True
        assert self.principal is not None, "a controlled call has a principal"
        if self._book().decide(self.principal, actions, (resource,)) is AccessDecision.DENIED:
            return False
        if len(self._held) <= HELD_MAX:
            self._held.add((actions, resource))
        return True

    async def _allowed(self, actions: Actions, resource: Resource) -> bool:
        if self.allows(actions, resource):
            return True
        await self._newest()
        return self.allows(actions, resource)

    async def sight(self) -> Sight:
        """Which things a list shows: those that the caller may do anything with.

        `everything` to who observes the cluster.
        """
        if self._book is None or self._names is None:
            return everything
        # In any case: how long a list takes must not tell whether it leaves something out.
        await self._newest()
        if self._sees(OBSERVE, self._names.cluster):
            return everything
        return partial(self._sees, SEE)

    async def channel(self, name: str) -> Resource:
        """A channel, as the sight of a list knows it."""
        if self._names is None:
            return Resource(ResourceKind.CHANNEL, name)
        return await self._names.channel(name)

    def _sees(self, actions: Actions, resource: Resource) -> bool:
        """As `allows`, but nothing is decided again."""
        assert self._book is not None, "only a controlled call asks"
        assert self.principal is not None, "a controlled call has a principal"
        return self._book().decide(self.principal, actions, (resource,)) is AccessDecision.ALLOWED

    def lost(self) -> Refusal | None:
        """Why something that was allowed no longer is, by the newest book; None if all is."""
        if self._book is None or self.principal is None:
            return None
        book = self._book()
        for actions, held in self._held:
            # A plain name stands beside its resource, for `holds`.
            if not isinstance(held, Resource):
                continue
            if book.decide(self.principal, actions, (held,)) is AccessDecision.DENIED:
                return Refusal(*denied(self.name, actions, held))
        return None


def _ignore(_: Refusal) -> None:
    """Nobody listens yet."""


UNCONTROLLED: Final = Access()
CALLER: Final[ContextVar[str]] = ContextVar("caller", default="")
"""Who makes the call that is served, as limits know it."""

CURRENT: Final[ContextVar[Access]] = ContextVar("access", default=UNCONTROLLED)
"""That of the call which the running task serves."""

ONLY_PROCESSES: Final = (
    StreamingCode.PERMISSION_DENIED,
    (
        "permission denied: only the processes of this cluster make this call, by their secret; set"
        " `auth` the same for all of them, and give them one data folder, or copies of one"
        " `cluster.secret`"
    ),
)


def denied(who: str, actions: Actions, resource: Resource) -> tuple[StreamingCode, str]:
    """Code and cause. Nothing in them tells whether the thing exists, or of what it is."""
    seeing = len(actions) == len(Action)
    action = Action.CONSUME if seeing else min(actions)
    kind, name = resource.kind, resource.shown or resource.name
    shown = f"this {kind}" if kind is ResourceKind.CLUSTER else f"{kind} {name[:255]!r}"
    # Programs name collections, whose channels they use.
    by = ResourceKind.COLLECTION if kind is ResourceKind.CHANNEL else kind
    grant = f"{action}:{by}:{'*' if kind is ResourceKind.CLUSTER else 'PATTERN'}"
    return StreamingCode.PERMISSION_DENIED, (
        f"permission denied: {who!r} may not {'see' if seeing else _VERBS[action]} {shown}; an"
        f" administrator grants it, such as {grant}, to one of the roles of {who!r} with"
        " `tidemark auth role set`, which takes all grants that the role shall have"
    )


_VERBS: Final = {
    Action.PRODUCE: "append to",
    Action.CONSUME: "consume",
    Action.GROUP: "use",
    Action.DDL: "define, change or drop",
    Action.BROADCAST: "broadcast to",
    Action.TXN: "use transactions on",
    Action.ADMIN: "administer",
    Action.CHAOS: "kill actors of",
    Action.OBSERVE: "observe",
}
