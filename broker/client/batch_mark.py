"""What ties a batch to the reader that gave it out, so that it can be committed to a cursor."""

from typing import Any, Protocol

from broker.core.time.commit_tracker import Place
from broker.model.named_cursor import WHOLE_TICK, ChannelPosition


class Commits(Protocol):
    """The reader of a cursor, as its batches know it."""

    @property
    def cursor(self) -> Any: ...

    async def commit(self, mark: "BatchMark", deadline_s: float) -> None: ...


class BatchMark:
    """`end`: everything up to it on the batch's channels is processed once the batch is.

    `commits` and `places` are set when a reader of a cursor gives the batch out.
    """

    __slots__ = ("commits", "end", "places")

    def __init__(self, end: ChannelPosition) -> None:
        self.end = end
        self.commits: Commits | None = None
        self.places: tuple[Place, ...] = ()

    def __repr__(self) -> str:
        part = "" if self.end.id == WHOLE_TICK else f", id {self.end.id}"
        return f"BatchMark(up to tick {self.end.tick}{part})"
