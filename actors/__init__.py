"""A small actor runtime on anyio with the semantics of Erlang/OTP. Start with actors/README.md."""

from actors.actor import Actor, Context, Tree
from actors.clock import Alarm, Clock, SystemClock
from actors.envelope import Envelope, Request
from actors.errors import (
    ActorDied,
    ActorError,
    AskTimeout,
    MailboxFull,
    NameTaken,
    NoSuchActor,
    NotRunning,
    PlannedRestart,
    StaleTerm,
    StartInterrupted,
    StartTimeout,
    TooManyRestarts,
)
from actors.exit import Exit, ExitKind
from actors.identity import Identity, identity
from actors.incarnation import Terminated
from actors.mailbox import MailboxSpec, Overflow
from actors.ref import Ref
from actors.spec import ChildSpec, SupervisorSpec, TermSource
from actors.statistics import ActorStatistics
from actors.strategy import Backoff, Restart, Strategy
from actors.system import System
from actors.timer import Timer

ONE_FOR_ONE = Strategy.ONE_FOR_ONE
ONE_FOR_ALL = Strategy.ONE_FOR_ALL
REST_FOR_ONE = Strategy.REST_FOR_ONE
PERMANENT = Restart.PERMANENT
TRANSIENT = Restart.TRANSIENT
TEMPORARY = Restart.TEMPORARY

__all__ = [
    "ONE_FOR_ALL", "ONE_FOR_ONE", "PERMANENT", "REST_FOR_ONE", "TEMPORARY", "TRANSIENT",
    "Actor", "ActorDied", "ActorError", "ActorStatistics", "Alarm", "AskTimeout", "Backoff",
    "ChildSpec", "Clock", "Context", "Envelope", "Exit", "ExitKind", "Identity", "MailboxFull",
    "MailboxSpec", "NameTaken", "NoSuchActor", "NotRunning", "Overflow", "PlannedRestart", "Ref",
    "Request", "Restart", "StaleTerm", "StartInterrupted", "StartTimeout", "Strategy",
    "SupervisorSpec", "System", "SystemClock", "TermSource", "Terminated", "Timer",
    "TooManyRestarts", "Tree", "identity",
]  # fmt: skip
