"""Carries the plan out on a live cluster, and counts what struck and what found nobody.

Every fault is taken back when it is over, and when the storm is ended before that.
"""

import logging
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from broker.client import Client, TidemarkError
from tests.chaos.storm.cluster import Cluster, Member
from tests.chaos.storm.history import pchannel_of
from tests.chaos.storm.plan import Fault
from tests.chaos.storm.recorder import Recorder

log = logging.getLogger("tests.chaos")

DELAYS_S = (0.02, 0.1, 0.5)
TO_NODES = ("lose-answers", "trickle")
ASK_S = 10.0
AGAIN_S = 0.2
HELD_S = 0.1
AFTERLIFE_S = 1.0
SLOW_DISK = """
import os, sys
block = bytes(4 << 20)
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        for _ in range(16):
            file.write(block)
            os.fsync(file.fileno())
        file.seek(0)
"""


@dataclass(slots=True)
class Storm:
    """`struck` and `missed` count faults by kind; `log` kills actors and nothing else."""

    cluster: Cluster
    folder: Path
    log: Client
    recorder: Recorder
    struck: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    told: list[tuple[float, str]] = field(default_factory=list)

    async def rage(self, plan: Sequence[Fault]) -> None:
        """Until the last fault is over; each strikes at its time, whatever others do."""
        began_s = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for fault in plan:
                await anyio.sleep(max(0.0, began_s + fault.at_s - anyio.current_time()))
                self._begin(fault, tasks)

    def _begin(self, fault: Fault, tasks: TaskGroup) -> None:
        tasks.start_soon(self._strike, fault)

    async def _strike(self, fault: Fault) -> None:
        began_s = anyio.current_time()
        whom = await self._carry_out(fault)
        (self.struck if whom else self.missed)[fault.kind] += 1
        told = f"{fault.kind} {whom or 'nobody'} {fault.lasts_s:.2f} s"
        self.told.append((began_s, told))
        log.info("%9.3f %s", began_s, told)

    async def _carry_out(self, fault: Fault) -> str:
        """Whom it struck; empty when there was nobody."""
        member = self._member(fault)
        match fault.kind:
            case "kill-actor":
                return await self._kill_actor(fault)
            case "kill-node" | "kill-coordinator":
                return member.name if member.signal(signal.SIGKILL) else ""
            case "kill-owner":
                return await self._kill_owner()
            case "zombie":
                return await self._make_zombie(fault)
            case "stop-node" | "stop-coordinator":
                return await stop(member, fault.lasts_s)
            case "quota":
                return await _limit_files(member, fault.lasts_s)
            case "slow-disk":
                return await self._slow_disk(fault.lasts_s)
            case _:
                return await self._disturb(fault)

    def _member(self, fault: Fault) -> Member:
        """A quota strikes any process."""
        if fault.kind.endswith("coordinator"):
            return self.cluster.coordinator
        members = self.cluster.members if fault.kind == "quota" else self.cluster.nodes
        return members[fault.choices[0] % len(members)]

    async def _kill_actor(self, fault: Fault) -> str:
        """Asked for again while there is nobody to answer."""
        with anyio.move_on_after(ASK_S):
            while True:
                try:
                    found = await self.log.admin.actors()
                    paths = sorted(it.path for it in found if it.path.count("/") > 1)
                    path = paths[fault.choices[0] % len(paths)]
                    await self.log.admin.kill_actor(path)
                    return path
                except TidemarkError:
                    await anyio.sleep(AGAIN_S)
        return ""

    async def _kill_owner(self) -> str:
        """Who has just acknowledged something: not more than that may be on its disk."""
        with anyio.move_on_after(ASK_S):
            vchannel = await self.recorder.next_acknowledged()
            name = pchannel_of(vchannel)
            owners = [it.node_id for it in self.recorder.history.owned if it.pchannel == name]
            for owner in owners[-1:]:
                member = self.cluster.nodes[owner - 1]
                return member.name if member.signal(signal.SIGKILL) else ""
        return ""

    async def _make_zombie(self, fault: Fault) -> str:
        """Stop a node until others have its channels, and let it find clients that do not know.

        Every other time appends that it may write by its lease wait at the door of the disk.
        """
        number = fault.choices[0] % len(self.cluster.nodes)
        member = self.cluster.nodes[number]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.cluster.client_links[0].silence, fault.lasts_s + AFTERLIFE_S)
            async with member.held() if fault.choices[1] % 2 else nullcontext():
                await anyio.sleep(HELD_S)
                return await stop(member, fault.lasts_s)
        raise AssertionError("unreachable")

    async def _disturb(self, fault: Fault) -> str:
        """The clients' links, or those of a node; some strike where appends and readers are."""
        number = fault.choices[0] % len(self.cluster.nodes)
        links = self.cluster.links_of(number)
        if fault.kind not in TO_NODES:
            links = [*self.cluster.client_links, *links]
        else:
            links = links[1:]
        link = links[fault.choices[1] % len(links)]
        match fault.kind:
            case "cut":
                await link.cut(fault.lasts_s)
            case "silence":
                await link.silence(fault.lasts_s)
            case "delay":
                await link.delay(fault.lasts_s, DELAYS_S[fault.choices[1] // 8 % len(DELAYS_S)])
            case "lose-answers":
                await link.lose_answers(fault.lasts_s)
            case "trickle":
                await link.trickle(fault.lasts_s)
            case _:
                raise AssertionError(fault.kind)
        return link.name

    async def _slow_disk(self, lasts_s: float) -> str:
        command = [sys.executable, "-c", SLOW_DISK, str(self.folder / "filler")]
        writer = subprocess.Popen(command)  # noqa: ASYNC220 - waited for when it was killed
        try:
            await anyio.sleep(lasts_s)
        finally:
            writer.kill()
            writer.wait()
        return "the disk"


async def stop(member: Member, lasts_s: float) -> str:
    """Stop it for a while; its name, empty when there is nobody."""
    pid = member.pid
    if not member.signal(signal.SIGSTOP):
        return ""
    try:
        await anyio.sleep(lasts_s)
    finally:
        if member.pid == pid:
            member.signal(signal.SIGCONT)
    return member.name


async def _limit_files(member: Member, lasts_s: float) -> str:
    """As a full quota: no file can be written to, wherever in it."""
    pid = member.pid
    if pid is None:
        return ""
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, most))
    try:
        await anyio.sleep(lasts_s)
    finally:
        if member.pid == pid:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))
    return member.name
