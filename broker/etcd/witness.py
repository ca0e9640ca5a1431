"""A child process that outlives this one by one write: it records that this process has ended.

It waits on a pipe whose other end only this process has. The kernel closes that end when the
process has ended, however it ended: after its last thread, so when nothing of it answers any more.
It is started before there is anything to record, because an interpreter takes a while to start.
"""

import subprocess
import sys
from contextlib import suppress
from typing import Final

import anyio
import structlog
from anyio import to_thread

from broker.etcd.last_write import MODULE, OVER, LastWrite

COMMAND: Final = (sys.executable, "-m", MODULE)
LOOK_S, LOOK_S_MAX = 1.0, 60.0
"""Between two looks whether it still waits; twice as long each time that it does not."""
END_S: Final = 1.0

log = structlog.get_logger("tidemark")


class Witness:
    """Kept alive by `keep`; ended by `dismiss`, or `leave`. Writes nothing without `tell`."""

    def __init__(self) -> None:
        self._last: LastWrite | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reported = False

    @property
    def pid(self) -> int:
        """Of the child process; 0 while there is none."""
        process = self._process
        return 0 if process is None or process.poll() is not None else process.pid

    async def keep(self) -> None:
        """Start it, and again when it was killed. Without it all goes on; that is logged."""
        await self.look()
        pause_s = LOOK_S
        while True:
            await anyio.sleep(pause_s)
            if await self.look():
                pause_s = min(2 * pause_s, LOOK_S_MAX)

    async def look(self) -> bool:
        """Start it if it does not wait; whether that was due."""
        if self.pid:
            return False
        if self._process is not None:
            self.leave()
            code = self._process.returncode
            log.warning("the witness of this process has ended and is started again", code=code)
        try:
            await to_thread.run_sync(self._start)
        except OSError as error:
            if not self._reported:  # once: it is tried again and again
                cause = "cannot start the witness: if this process is killed, its lease decides"
                log.warning(cause, error=str(error))
            self._reported = True
        return True

    def tell(self, last: LastWrite) -> None:
        """Have it carry out this write when this process has ended."""
        self._last = last
        if self.pid:
            self._send(last.line)

    async def dismiss(self) -> None:
        """End it without a write."""
        process = self._process
        if process is None:
            return
        self._send(OVER)
        self.leave()
        with anyio.CancelScope(shield=True):
            try:
                await to_thread.run_sync(process.wait, END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                await to_thread.run_sync(process.wait)

    def leave(self) -> None:
        """Have it write now: this process does nothing more. It goes on beside this process."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def _start(self) -> None:
        # A session of its own: it gets no signals of a terminal. Of the descriptors of this
        # process it has none but standard error: neither the port nor a lock stays with it.
        self._process = subprocess.Popen(
            COMMAND,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        if self._last is not None:
            self._send(self._last.line)

    def _send(self, line: bytes) -> None:
        pipe = None if self._process is None else self._process.stdin
        if pipe is not None and not pipe.closed:
            with suppress(OSError):  # it was killed; the next one is told
                pipe.write(line)  # shorter than what a pipe takes at once
