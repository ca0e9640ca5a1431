"""A process as an actor: started with it, watched, restarted by the same rules, ended with it.

Owns the process and the two pipes to it. Its stdin is a leash: the system closes it when this
process is gone, however it went, and the other one ends. Its stdout tells when it has ended. Never
speaks to it otherwise.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import anyio
from anyio import to_thread

from actors import (
    Actor,
    Backoff,
    ChildSpec,
    Context,
    Envelope,
    MailboxSpec,
    PlannedRestart,
    SupervisorSpec,
)
from actors.clock import deadline
from broker.model.ids import NodeId

FLEET = "fleet"
READ_BYTES = 4096
TAKEN_OVER_S = 3.0
"""How long a process that ended waits for others to take over what it served, before it is started
again: its start takes a whole processor for a second, which they need first."""
REAP_S = 2.0
"""A killed process is gone long before; a longer wait would hold up the supervisor."""
RESTARTS_MAX = 10_000
"""One node that cannot be kept up must not take the coordinator down: it is tried for ever."""


class NodeEnded(PlannedRestart):
    """A node process is gone: its supervisor starts another."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The process has closed its stdout, which it does by ending."""


ProcessMessage = Ended


def _nothing_more(_: NodeId) -> Mapping[str, str]:
    return {}


async def _at_once() -> None:
    """Nobody takes anything over."""


@dataclass(slots=True)
class Fleet:
    """How node processes are started, and those that run.

    `ended` hears of each that is gone, with its pid. `of_one`: what is told to one node alone,
    besides the `environment` of all. `taken_over`: waits until others serve what a node that died
    has served, or there are none.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    ended: Callable[[NodeId, int], None]
    of_one: "Callable[[NodeId], Mapping[str, str]]" = _nothing_more
    taken_over: "Callable[[], Awaitable[None]]" = _at_once
    running: "dict[NodeId, subprocess.Popen[bytes]]" = field(default_factory=dict)
    closing: bool = False

    def start(self, node: NodeId) -> "subprocess.Popen[bytes]":
        """In a process group of its own, so that Ctrl-C reaches us only, and we stop it in order.

        Raises OSError.
        """
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **self.environment, "TIDEMARK_NODE_ID": str(node)}
            | dict(self.of_one(node)),
            process_group=0,
        )
        self.running[node] = process
        return process

    def hang_up(self) -> None:
        """Ask all to stop, at once; that they end from now on is no news."""
        self.closing = True
        for process in self.running.values():
            _signal(process, signal.SIGTERM)


class NodeProcess(Actor[ProcessMessage]):
    """One node process; this actor's term is the number of the process at this place."""

    _context: Context[ProcessMessage]

    def __init__(self, node: NodeId, fleet: Fleet, stop_s: float) -> None:
        self._node = node
        self._fleet = fleet
        self._stop_s = stop_s
        self._process: subprocess.Popen[bytes] | None = None

    async def started(self, context: Context[ProcessMessage]) -> None:
        """Returns when the process exists; it registers by itself."""
        self._context = context
        if context.term > 1:
            with deadline(context.clock, TAKEN_OVER_S):
                await self._fleet.taken_over()
        self._process = self._fleet.start(self._node)
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        asyncio.get_running_loop().add_reader(self._process.stdout.fileno(), self._listen)

    async def receive(self, batch: Sequence[Envelope[ProcessMessage]]) -> None:
        for envelope in batch:
            match envelope.message:
                case Ended() if self._fleet.closing:
                    continue
                case Ended():
                    code = await self._gone()
                    raise NodeEnded(f"node {self._node} ended with code {code}")
                case _:
                    assert_never(envelope.message)

    def stop_requested(self) -> None:
        if self._process is not None:
            _signal(self._process, signal.SIGTERM)

    async def stopped(self) -> None:
        """What does not stop in time is killed afterwards."""
        with anyio.move_on_after(self._stop_s):
            await self._gone()

    async def reap(self) -> None:
        """However this actor ended: no process outlives it, and none is left unburied."""
        process = self._process
        if process is None:
            return
        self._deafen()
        if process.poll() is None:
            process.kill()
            with anyio.move_on_after(REAP_S):
                await self._gone()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        if self._fleet.running.get(self._node) is process:
            del self._fleet.running[self._node]
        self._fleet.ended(self._node, process.pid)

    def statistics(self) -> Mapping[str, int | float | str]:
        return {} if self._process is None else {"pid": self._process.pid}

    async def _gone(self) -> int:
        """Its exit code, minus the signal that killed it."""
        assert self._process is not None
        return await to_thread.run_sync(self._process.wait, abandon_on_cancel=True)

    def _listen(self) -> None:
        """What it says is its ready line, which needs no answer; its silence is its end."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            said = os.read(self._process.stdout.fileno(), READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self._deafen()
            self._fleet.ended(self._node, self._process.pid)
            self._context.self.tell(Ended())

    def _deafen(self) -> None:
        assert self._process is not None
        if self._process.stdout is not None and not self._process.stdout.closed:
            asyncio.get_running_loop().remove_reader(self._process.stdout.fileno())


def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(number)


def fleet_tree(fleet: Fleet, nodes: Sequence[NodeId], stop_s: float) -> SupervisorSpec:
    """The subtree `fleet`: an actor for each node process."""

    def process(node: NodeId) -> ChildSpec:
        return ChildSpec(
            f"node-{node}",
            lambda: NodeProcess(node, fleet, stop_s),
            MailboxSpec(bound=8),
            stop_deadline_s=stop_s + REAP_S,
            patient=True,
        )

    return SupervisorSpec(
        FLEET,
        children=tuple([process(node) for node in nodes]),
        restarts_max=RESTARTS_MAX,
        backoff=Backoff(first_s=0.05, max_s=2.0),
    )
