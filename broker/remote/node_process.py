"""A node process as an actor: started, watched and restarted by the rules of a supervisor.

The actor holds two pipes to the process. Its stdin is a leash: the system closes it when this
process ends, however it ends, and then the node ends too. Its stdout closes when the node ends.
"""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import anyio
import structlog
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
PREFIX = "TIDEMARK_"
READ_BYTES = 4096
TAKEN_OVER_S = 3.0
"""How long the restart of a process waits until other nodes serve its channels: starting uses a
whole processor for a second, which the other nodes need first."""
REAP_S = 2.0
"""A killed process ends much sooner; a longer wait would block the supervisor."""
RESTARTS_MAX = 10_000
"""Practically unlimited: a node that keeps failing must not end the coordinator."""


log = structlog.get_logger(__name__)


class NodeEnded(PlannedRestart):
    """A node process has ended: its supervisor starts another."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The process has closed its stdout, so it has ended."""


ProcessMessage = Ended


def _no_variables(_: NodeId) -> Mapping[str, str]:
    return {}


async def _no_takeover() -> None:
    """Wait for no takeover."""


@dataclass(slots=True)
class Fleet:
    """How node processes are started, and those that run.

    `ended` is called for each that has ended, with its pid. `of_one`: environment variables of one
    node, besides the `environment` of all. `taken_over` waits until other nodes serve the channels
    of one that died, or there are no others.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    ended: Callable[[NodeId, int], None]
    of_one: "Callable[[NodeId], Mapping[str, str]]" = _no_variables
    taken_over: "Callable[[], Awaitable[None]]" = _no_takeover
    running: "dict[NodeId, subprocess.Popen[bytes]]" = field(default_factory=dict)
    closing: bool = False

    def start(self, node: NodeId) -> "subprocess.Popen[bytes]":
        """Start it in a process group of its own, so that Ctrl-C reaches only this process.

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
        assert process.stdin is not None
        # A node that reads nothing must not block this process.
        os.set_blocking(process.stdin.fileno(), False)
        self.running[node] = process
        return process

    def change_settings(self, environment: Mapping[str, str]) -> None:
        """Start later processes in this environment, and pass what changed on to those that run."""
        changed = {
            name.removeprefix(PREFIX).lower(): value
            for name, value in environment.items()
            if self.environment.get(name) != value
        }
        self.environment = environment
        if not changed:
            return
        line = json.dumps(changed).encode() + b"\n"
        for node, process in self.running.items():
            assert process.stdin is not None
            try:
                os.write(process.stdin.fileno(), line)
            except OSError as error:  # it has ended, or reads nothing: its successor knows them
                log.warning("changed settings not passed on", node=node, error=str(error))

    def hang_up(self) -> None:
        """Ask all to stop, at the same time; their ends are expected from now on."""
        self.closing = True
        for process in self.running.values():
            _signal(process, signal.SIGTERM)


class NodeProcess(Actor[ProcessMessage]):
    """One node process; the actor's term counts the processes started for this node."""

    _context: Context[ProcessMessage]

    def __init__(self, node: NodeId, fleet: Fleet, stop_s: float) -> None:
        self._node = node
        self._fleet = fleet
        self._stop_s = stop_s
        self._process: subprocess.Popen[bytes] | None = None

    async def started(self, context: Context[ProcessMessage]) -> None:
        """Start the process; it registers with the coordinator later."""
        self._context = context
        if context.term > 1:
            # Only a restart waits: before the first start no other node has anything to take over.
            with deadline(context.clock, TAKEN_OVER_S):
                await self._fleet.taken_over()
        self._process = self._fleet.start(self._node)
        assert self._process.stdout is not None
        # A read that finds nothing must not block the event loop.
        os.set_blocking(self._process.stdout.fileno(), False)
        asyncio.get_running_loop().add_reader(self._process.stdout.fileno(), self._listen)

    async def receive(self, batch: Sequence[Envelope[ProcessMessage]]) -> None:
        for envelope in batch:
            match envelope.message:
                # Expected: raising would make the supervisor start another process.
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
        """Wait for the process to end; `reap` kills one that does not in time."""
        with anyio.move_on_after(self._stop_s):
            await self._gone()

    async def reap(self) -> None:
        """Kill and wait for the process, so that none outlives its actor or stays a zombie."""
        process = self._process
        if process is None:
            return
        self._stop_listening()
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
        """Wait for its exit code; negative, the signal that killed it."""
        assert self._process is not None
        # wait() blocks. A thread that is abandoned ends with the process, which `reap` kills.
        return await to_thread.run_sync(self._process.wait, abandon_on_cancel=True)

    def _listen(self) -> None:
        """Read stdout: the ready line is skipped; end of file means that the process has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            said = os.read(self._process.stdout.fileno(), READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self._stop_listening()
            self._fleet.ended(self._node, self._process.pid)
            self._context.self.tell(Ended())

    def _stop_listening(self) -> None:
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
