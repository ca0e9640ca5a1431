"""Staged transactions: rows in the log that the commit of a whole batch makes visible.

A stage is what one attempt at one part of a batch wrote. The coordinator commits its transactions
together with those of all other parts, or none of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from broker.model.ids import TimeTick, TxnId, VChannelName

APP_BYTES_MAX: Final = 256
NUMBER_MAX: Final = (1 << 63) - 1
ONE_RUN_PREFIX: Final = "once:"
"""The prefix of app names that are used for a single run: no later run stages for them."""


@dataclass(frozen=True, slots=True)
class StageName:
    """Attempt `attempt` at part `part` of batch `batch` of the application `app`.

    `run`: the number of the app's run, 0 if unknown; it does not count for equality.
    """

    app: str
    batch: int
    part: int
    attempt: int
    run: int = field(default=0, compare=False)

    @property
    def problem(self) -> str:
        """Why the name is invalid; empty if it is valid."""
        wrong = app_problem(self.app)
        if wrong:
            return wrong
        for what in ("batch", "part", "attempt", "run"):
            number = getattr(self, what)
            if not 0 <= number <= NUMBER_MAX:
                return f"{what} is {number}; it must be 0 or more, and fit 63 bits"
        return ""

    def supersedes(self, other: "StageName") -> bool:
        """Whether this stage replaces the other one, which will never be committed.

        It does if the other is of an earlier run of the app, or an earlier attempt at the same part
        in the same run. A stage without a run is never replaced.
        """
        if not other.run or (self.app, self.batch) != (other.app, other.batch):
            return False
        again = self.part == other.part and self.attempt > other.attempt
        return self.run > other.run or (self.run == other.run and again)

    def __str__(self) -> str:
        """The form in error texts."""
        return f"part {self.part}, attempt {self.attempt} of batch {self.batch} of app {self.app!r}"


def app_problem(app: str) -> str:
    """Why this cannot name an application; empty if it can."""
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
    """One transaction of a stage: its vchannel and id, and its part and attempt."""

    vchannel: VChannelName
    txn_id: TxnId
    part: int
    attempt: int


class TxnCommand(Enum):
    """A command of the coordinator to a staged transaction.

    ABORT rolls back a transaction whether it is prepared or not; ABORT_UNPREPARED only one that no
    commit has prepared.
    """

    PREPARE = "prepare"
    COMMIT = "commit"
    ABORT = "abort"
    ABORT_UNPREPARED = "abort unprepared"


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """The transactions to commit together as batch `batch` of `app`."""

    app: str
    batch: int
    txns: tuple[StagedTxn, ...]

    @property
    def problem(self) -> str:
        """Why the batch is invalid; empty if it is valid."""
        return StageName(self.app, self.batch, 0, 0).problem

    def stage(self, txn: StagedTxn) -> StageName:
        """The stage of one of its transactions."""
        return StageName(self.app, self.batch, txn.part, txn.attempt)


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """A committed batch.

    `ticks`: the tick that a reader of each vchannel must reach to have read all of the batch;
    without vchannels for which it is not known any more. `already`: this batch, or a later one of
    the app, was committed before; `batch` is then the app's newest batch, with its ticks.
    """

    app: str
    batch: int
    ticks: Mapping[VChannelName, TimeTick]
    already: bool = False
