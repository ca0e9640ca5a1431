"""Measures how soon dropped collections give their bytes back, and what appends pay for it.

A broker of its own, with nine of its ten collections dropped while the tenth is appended to.
"""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from served_broker import killed, served_broker

from benchmark import names
from benchmark.measures.master.together import Values
from benchmark.results.figures import BACK, MESSAGES, RATE
from broker.client import Client, connect

COLLECTIONS, DROPPED = 10, 9
EACH_BYTES = 24 * 1024 * 1024
BATCH, BODY = 100, b"." * 1000
SEGMENT_BYTES = 16 * 1024 * 1024
PERIOD_S = 10
"""One retention period of this broker."""
SHARE = 0.85
QUIET_S, AMID_S_MIN, AMID_S_MAX = 5.0, 5.0, 60.0
LOOK_S = 0.1
WRITERS = 4
RUN_S_MAX = 180
SETTINGS = f"""
pchannels = 4
segment_bytes = {SEGMENT_BYTES}
retention_check_s = {PERIOD_S}
"""


class GivenBack:
    """Starts a broker for each round, with its data below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def measure(self) -> Mapping[str, Values]:
        """Appends before the drop and behind it, and when `SHARE` of the bytes are back."""
        with TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as place:
            data, settings = Path(place) / "space", Path(place) / "settings.toml"
            settings.write_text(SETTINGS)
            with served_broker(data, "--config", str(settings), stop=killed) as broker:
                run = _measured(broker.address, data / "wal")
                return uvloop.run(asyncio.wait_for(run, RUN_S_MAX))


async def _measured(address: str, logs: Path) -> dict[str, Values]:
    async with connect(address) as log:
        collections = [f"c{it}" for it in range(COLLECTIONS)]
        for it in collections:
            await log.collections.create(it, shards=4)
        for _ in range(EACH_BYTES // (BATCH * len(BODY))):
            async with asyncio.TaskGroup() as tasks:
                for it in collections:
                    tasks.create_task(log.append_batch(it, [BODY] * BATCH))
        filled = COLLECTIONS * (EACH_BYTES // (BATCH * len(BODY))) * BATCH
        each_bytes = stored_bytes(logs) / filled
        kept = collections[-1]
        quiet = await _appended(log, kept, asyncio.create_task(asyncio.sleep(QUIET_S)))
        before = stored_bytes(logs)
        began_s = time.perf_counter()
        for it in collections[:DROPPED]:
            await log.collections.drop(it)
        counter = [0]
        wanted = SHARE * DROPPED / COLLECTIONS * filled * each_bytes

        async def until_back() -> float:
            while True:
                now = await asyncio.to_thread(stored_bytes, logs)
                if before + counter[0] * each_bytes - now >= wanted:
                    return time.perf_counter() - began_s
                await asyncio.sleep(LOOK_S)

        async def watched() -> float:
            async with asyncio.timeout(AMID_S_MAX):
                back_s, _ = await asyncio.gather(until_back(), asyncio.sleep(AMID_S_MIN))
            return back_s

        watch = asyncio.create_task(watched())
        amid = await _appended(log, kept, watch, counter)
        return {
            names.QUIET_APPENDS: quiet,
            names.APPENDS_AMID: amid,
            names.SPACE_BACK: {BACK: watch.result()},
        }


async def _appended(
    log: Client,
    name: str,
    until: "asyncio.Task[None] | asyncio.Task[float]",
    counter: list[int] | None = None,
) -> Values:
    """Append batches until a task has ended; raises what it raises."""
    done = [0] if counter is None else counter
    began_s = time.perf_counter()

    async def write() -> None:
        while not until.done():
            await log.append_batch(name, [BODY] * BATCH)
            done[0] += BATCH

    async with asyncio.TaskGroup() as tasks:
        for _ in range(WRITERS):
            tasks.create_task(write())
    await until
    return {RATE: done[0] / (time.perf_counter() - began_s), MESSAGES: done[0]}


def stored_bytes(logs: Path) -> int:
    """What the log files take of the disk."""
    found = 0
    for path in logs.glob("*/*"):
        try:
            found += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue  # it was given back meanwhile
    return found
