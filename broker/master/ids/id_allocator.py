"""Gives out ids from memory, below a durable bound that is moved on ahead of need."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

from actors import Actor, ActorDied, ActorError, Context, Envelope, NoSuchActor, Ref, StaleTerm
from broker.coordinator.records import COLLECTION_ID_KEY, decode_number, encode_number
from broker.core.master import id_window
from broker.master.ids.messages import IdMessage, ReserveAhead, TakeIds
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.master.id_range import IdRange
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.id_source import IDS_COUNT_MAX
from broker.ports.meta import MetaError, MetaStore

ID_BOUND_KEY = "ids/bound"
LOOK_AHEAD_S = 0.4
TAKE_DEADLINE_S = 5.0


class IdAllocator(Actor[IdMessage]):
    """Serves TakeIds. `statistics`: the next id, the durable bound, the writes of this incarnation.

    A new incarnation continues at the durable bound. The first range is reserved by the first
    request, so a process that needs no ids writes nothing.
    """

    _context: Context[IdMessage]
    _window: id_window.IdWindow

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._saved: tuple[int, int] | None = None
        """The stored bound and its revision; None: read them before the next write."""
        self._writes = 0

    async def started(self, context: Context[IdMessage]) -> None:
        counted = await self._store.get(COLLECTION_ID_KEY)
        # Collections of earlier releases were counted from 1 on; an id of theirs is never reused.
        floor = decode_number(COLLECTION_ID_KEY, counted.value) if counted else 0
        self._saved = await self._read()
        self._window = id_window.opened(self._saved[0], floor)
        self._context = context
        context.on_beat(LOOK_AHEAD_S, ReserveAhead())

    async def receive(self, batch: Sequence[Envelope[IdMessage]]) -> None:
        refused: Refused | None = None
        for envelope in batch:
            match envelope.message:
                case TakeIds(count):
                    # One failed write refuses the rest of the batch: each would wait for the store.
                    refused = await self._take(count, envelope, refused)
                case ReserveAhead():
                    await self._reserve_ahead()
                case message:
                    assert_never(message)

    def statistics(self) -> Mapping[str, int | float | str]:
        return {
            "next_id": self._window.next_id,
            "bound": self._window.bound,
            "writes": self._writes,
        }

    async def _take(
        self, count: int, envelope: Envelope[IdMessage], refused: Refused | None
    ) -> Refused | None:
        """Answer one request; the refusal when the store failed, now or before in this batch."""
        if not 1 <= count <= IDS_COUNT_MAX:
            cause = f"the number of ids must be 1 to {IDS_COUNT_MAX}, not {count}"
            envelope.fail(invalid_argument(cause))
            return refused
        outcome = id_window.take(self._window, count)
        if isinstance(outcome, id_window.ReserveFirst) and refused is None:
            try:
                await self._extend(outcome.bound)
            except MetaError as error:
                refused = no_ids(str(error))
            outcome = id_window.take(self._window, count)
        match outcome:
            case id_window.TakenIds(after, first):
                self._window = after
                envelope.reply(IdRange(first, count))
            case id_window.ReserveFirst():
                assert refused is not None
                envelope.fail(refused)
            case id_window.UsedUp():
                cause = f"all ids up to {id_window.ID_MAX} are used up; found a new cluster"
                envelope.fail(Refused(StreamingCode.UNRECOVERABLE, cause))
            case _:
                assert_never(outcome)
        return refused

    async def _reserve_ahead(self) -> None:
        due = id_window.bound_due(self._window)
        if due is None or not self._writes:
            return
        try:
            await self._extend(due)
        except MetaError:
            pass  # half of the range is left; a request that finds none reports the error

    async def _extend(self, wanted: int) -> None:
        """Make a bound of `wanted` or more durable, then use it. Raises MetaError."""

        async def attempt() -> tuple[int, int]:
            saved, revision = self._saved or await self._read()
            self._saved = None
            bound = max(wanted, min(saved + id_window.WINDOW, id_window.ID_MAX + 1))
            # Ids are given out only after their bound is durable: a later incarnation starts there.
            written = await self._store.write(
                {ID_BOUND_KEY: encode_number(bound)}, expect={ID_BOUND_KEY: revision}
            )
            self._saved = bound, written
            return saved, bound

        saved, bound = await retry_conflicts(ID_BOUND_KEY, attempt)
        self._writes += 1
        self._window = id_window.extended(self._window, saved, bound)

    async def _read(self) -> tuple[int, int]:
        """The stored bound and its revision; zeros for none."""
        entry = await self._store.get(ID_BOUND_KEY)
        if entry is None:
            return 0, 0
        return decode_number(ID_BOUND_KEY, entry.value), entry.revision


class AskedIds:
    """IdSource (`broker/ports/id_source.py`) that asks the current incarnation of the allocator."""

    def __init__(self, find: Callable[[str], Ref[Any]], path: str) -> None:
        self._find = find
        self._path = path

    async def take(self, count: int = 1) -> IdRange:
        """See IdSource."""
        try:
            return await self._ask(count)
        except (StaleTerm, ActorDied, NoSuchActor):
            pass  # Ids of the lost answer are never used: a harmless gap.
        except ActorError as error:
            raise no_ids(str(error)) from error
        try:
            return await self._ask(count)
        except ActorError as error:
            raise no_ids(str(error)) from error

    async def _ask(self, count: int) -> IdRange:
        found: Ref[IdMessage] = self._find(self._path)
        return await found.ask(TakeIds(count), deadline_s=TAKE_DEADLINE_S)


def no_ids(cause: str) -> Refused:
    """The refusal of a request that may succeed later."""
    return Refused(StreamingCode.INNER, f"no ids available: {cause}; try again")
