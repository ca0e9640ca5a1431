"""Measures what a client that behaves notices of each attack on its broker.

The attackers are a process of their own, which gets what processor time the others leave: on a
network they would have another machine's.
"""

import argparse
import asyncio
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import anyio

from broker.client import Client
from broker.client.errors import TidemarkError
from tests.limits.hostile.attack import Attack, Got, Setup, Target
from tests.limits.hostile.attacked_broker import VCHANNEL, Attacked, attacked
from tests.limits.hostile.every_attack import ATTACKS

NICE = 19
OPEN_FILES = 8192
READY_S, END_S = 60.0, 30.0
SHOWN_MAX = 4
"""Kinds of answers to one attack."""


def main() -> int:
    """Run every attack for so many seconds; 0 when each got only what it may get, and no append
    of the neighbour failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", default="", help="names of attacks with commas between")
    parser.add_argument("--table", action="store_true", help="print a table for a page")
    parser.add_argument("--be", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be:
        (attack,) = _chosen(options.be)
        asyncio.run(_be(attack, Target(**json.loads(sys.stdin.readline())), options.seconds))
        return 0
    return asyncio.run(_run(_chosen(options.only), options.seconds, table=options.table))


def _chosen(names: str) -> list[Attack]:
    known = {it.name: it for it in ATTACKS}
    wanted = [it for it in names.split(",") if it]
    unknown = sorted({*wanted} - {*known})
    if unknown:
        raise SystemExit(f"there is no attack {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[it] for it in wanted] or [*ATTACKS]


async def _run(attacks: Sequence[Attack], seconds: float, *, table: bool) -> int:
    print(_row(HEAD, table=table))
    if table:
        print("|" + " --- |" * len(HEAD))
    unexpected = 0
    for setup in Setup:
        if chosen := [it for it in attacks if it.setup is setup]:
            with tempfile.TemporaryDirectory() as folder:
                async with attacked(Path(folder), setup) as broker:
                    for attack in chosen:
                        unexpected += await _one(attack, broker, seconds, table=table)
    return 1 if unexpected else 0


async def _one(attack: Attack, broker: Attacked, seconds: float, *, table: bool) -> bool:
    """Whether the attack got what it may not get, or the neighbour no acknowledgement."""
    quiet, _ = await _appends(broker.neighbour, seconds / 2)
    bytes_before = broker.broker.resident_bytes()
    asked_before = broker.keys.asked if broker.keys is not None else 0
    command = [sys.executable, "-P", "-m", "runs.attacks", "--be", attack.name]
    child = subprocess.Popen(  # noqa: ASYNC220 - it is only started here
        [*command, "--seconds", str(seconds + 1)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdin is not None
        child.stdin.write(json.dumps(asdict(broker.target)) + "\n")
        child.stdin.flush()
        await _line(child, READY_S)
        during, failed = await _appends(broker.neighbour, seconds)
        got: dict[str, int] = json.loads(await _line(child, END_S))
    finally:
        child.kill()
        child.wait()
    # On both sides, because other programs load the machine, too.
    quiet += (await _appends(broker.neighbour, seconds / 2))[0]
    grown_mb = (broker.broker.resident_bytes() - bytes_before) / 1e6
    asked = broker.keys.asked - asked_before if broker.keys is not None else 0
    row = (
        attack.name,
        *(f"{len(it) / seconds:,.0f}" for it in (quiet, during)),
        *(f"{_p99(it):.1f}" for it in (quiet, during)),
        f"{max(during):.0f}",
        f"{grown_mb:+.0f}",
        _words(got) + (f"; keys read {asked}x" if asked else ""),
    )
    print(_row(row, table=table), flush=True)
    unexpected = {*got} - attack.gets
    if unexpected:
        print(f"{attack.name} must not get {', '.join(sorted(unexpected))}", file=sys.stderr)
    if failed:
        print(f"{attack.name} kept {failed} appends from being acknowledged", file=sys.stderr)
    return bool(unexpected or failed)


async def _line(child: "subprocess.Popen[str]", within_s: float) -> str:
    assert child.stdout is not None
    with anyio.fail_after(within_s):
        line = await anyio.to_thread.run_sync(child.stdout.readline, abandon_on_cancel=True)
    if not line:
        raise SystemExit("the attackers ended early; their own message stands above")
    return line


async def _be(attack: Attack, target: Target, seconds: float) -> None:
    """Attack for so long; print what was got."""
    os.nice(NICE)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, OPEN_FILES), most))
    got = Got()
    # Of sockets that the broker has closed.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    print("ready", flush=True)
    with anyio.move_on_after(seconds):
        await attack.run(target, got)
        await anyio.sleep_forever()
    print(json.dumps(got), flush=True)


async def _appends(log: Client, seconds: float) -> tuple[list[float], int]:
    """Milliseconds of each append, one after the other, at least one; and how many failed."""
    found: list[float] = []
    failed = 0
    began_s = time.monotonic()
    while (now_s := time.monotonic()) - began_s < seconds:
        try:
            await log.append(VCHANNEL, bytes(1024))
        except TidemarkError:
            failed += 1
        found.append((time.monotonic() - now_s) * 1e3)
    return found, failed


HEAD = (
    "attack",
    "appends/s without",
    "beside",
    "p99 without, ms",
    "beside",
    "slowest, ms",
    "memory, MB",
    "it got",
)
_WIDTHS = (22, 17, 7, 15, 7, 11, 10, 0)


def _row(cells: Sequence[str], *, table: bool) -> str:
    if table:
        return f"| {' | '.join(cells)} |"
    padded = [it.rjust(width) for it, width in zip(cells, _WIDTHS, strict=True)]
    return "  ".join([cells[0].ljust(_WIDTHS[0]), *padded[1:]])


def _words(got: dict[str, int]) -> str:
    ranked = sorted(got.items(), key=lambda it: -it[1])
    words = [f"{name} {count:,}x" for name, count in ranked[:SHOWN_MAX]]
    return ", ".join(words) + (", …" if len(ranked) > SHOWN_MAX else "") if words else "nothing"


def _p99(times_ms: list[float]) -> float:
    return sorted(times_ms)[int(len(times_ms) * 0.99)]


if __name__ == "__main__":
    sys.exit(main())
