"""Staged transactions: rows that are in the log and that one commit of a whole batch makes visible.

A stage is what one attempt at one part of a batch has written. Its transactions are committed by
the coordinator's decision alone, together with those of all other parts, or never.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from broker.model.ids import TimeTick, TxnId, VChannelName

APP_BYTES_MAX: Final = 256
NUMBER_MAX: Final = (1 << 63) - 1
ONE_RUN_PREFIX: Final = "once:"
"""So begins the name of an app that no later run has: nothing is staged for it a second time."""


@dataclass(frozen=True, slots=True)
class StageName:
    """Attempt `attempt` at part `part` of batch `batch` of `app`, which names who writes them.

    `run`: in which of its lives the app does it; 0: it does not say. It is no part of the name.
    """

    app: str
    batch: int
    part: int
    attempt: int
    run: int = field(default=0, compare=False)

    @property
    def problem(self) -> str:
        """Why there can be no such stage; empty when there can."""
        wrong = app_problem(self.app)
        if wrong:
            return wrong
        for what in ("batch", "part", "attempt", "run"):
            number = getattr(self, what)
            if not 0 <= number <= NUMBER_MAX:
                return f"{what} is {number}; it must be 0 or more, and fit 63 bits"
        return ""

    def supersedes(self, other: "StageName") -> bool:
        """Whether the other one was writing, in vain, what this one writes anew.

        So it is in an earlier life of the app, and with a smaller attempt in the same life. Nothing
        is known of one that does not say its run.
        """
        if not other.run or (self.app, self.batch) != (other.app, other.batch):
            return False
        again = self.part == other.part and self.attempt > other.attempt
        return self.run > other.run or (self.run == other.run and again)

    def __str__(self) -> str:
        """For people."""
        return f"part {self.part}, attempt {self.attempt} of batch {self.batch} of app {self.app!r}"


def app_problem(app: str) -> str:
    """Why no application can be called so; empty when one can."""
    if not app:
        return "the name of the app is empty; it must be the same in every run of the job"
    if not app.isprintable():
        return f"the name of the app, {app[:40]!r}, has characters that cannot be shown"
    size = len(app.encode())
    if size > APP_BYTES_MAX:
        return f"the name of the app has {size} bytes, at most {APP_BYTES_MAX} are allowed"
    return ""


@dataclass(frozen=True, slots=True, order=True)
class StagedTxn:
    """One transaction of a stage: where it is, and of which part and attempt."""

    vchannel: VChannelName
    txn_id: TxnId
    part: int
    attempt: int


class TxnCommand(Enum):
    """What the coordinator may say of a staged transaction.

    GIVE_UP is a rollback of what no commit has taken hold of; ABORT is one of what may be
    prepared, too.
    """

    PREPARE = "prepare"
    COMMIT = "commit"
    ABORT = "abort"
    ABORT_UNPREPARED = "abort unprepared"


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """What is to become visible as one: batch `batch` of `app`."""

    app: str
    batch: int
    txns: tuple[StagedTxn, ...]

    @property
    def problem(self) -> str:
        """Why there can be no such batch; empty when there can."""
        return StageName(self.app, self.batch, 0, 0).problem

    def stage(self, txn: StagedTxn) -> StageName:
        """The stage that one of its transactions is of."""
        return StageName(self.app, self.batch, txn.part, txn.attempt)


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """A batch that took effect.

    `ticks`: up to which tick a reader of each vchannel must have read to have all of it; a vchannel
    is missing when that is not known any more. `already`: it, or a later batch of the app, had
    taken effect before; `batch` is then the newest one, whose ticks these are.
    """

    app: str
    batch: int
    ticks: Mapping[VChannelName, TimeTick]
    already: bool = False
