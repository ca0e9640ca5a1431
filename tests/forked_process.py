"""`python -m broker ...` for tests, forked from a process that has imported the broker already.

It is a child of the test like any other: its own pid, signals, memory, environment and streams.
What it lacks is an interpreter that starts. Tests of that use `subprocess` itself.
"""

import atexit
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, AnyStr

COMMAND = [sys.executable, "-m", "broker"]
SERVER = Path(__file__).with_name("forking_server.py")
FORKS = sys.platform == "linux"
"""Elsewhere nothing can be adopted, and each process starts by itself."""
PR_SET_CHILD_SUBREAPER = 36

_adopting = threading.Lock()


class ForkedProcess(subprocess.Popen[AnyStr]):
    """A Popen of COMMAND with arguments; what cannot be forked is started as Popen does it."""

    def _execute_child(self, args: Any, executable: Any, *more: Any) -> None:
        """Popen's own hook, at which all pipes are made and the process is not."""
        preexec_fn, _, pass_fds, cwd, environment, _, _, shell, *rest = more
        ends, (_, gid, gids, uid, umask, new_session, group) = rest[:6], rest[6:]
        special = preexec_fn or pass_fds or shell or new_session or group != -1 or umask >= 0
        words = [] if isinstance(args, str) else [os.fspath(it) for it in args]
        if special or (gid, gids, uid) != (None,) * 3 or not _can_fork(words, environment):
            super()._execute_child(args, executable, *more)  # type: ignore[misc]
            return
        theirs = (ends[0], ends[3], ends[5])
        streams = [number if end == -1 else end for number, end in enumerate(theirs)]
        try:
            self.pid = _forked(words[len(COMMAND) :], streams, cwd, environment)
            self._child_created = True
        finally:
            self._close_pipe_fds(*ends)  # type: ignore[attr-defined]


def run_forked(
    command: Sequence[str], *, given: Any = None, timeout: float, **more: Any
) -> "subprocess.CompletedProcess[Any]":
    """`subprocess.run(command, capture_output=True)` with a ForkedProcess."""
    if given is not None:
        more["stdin"] = subprocess.PIPE
    pipe = subprocess.PIPE
    process: ForkedProcess[Any]
    with ForkedProcess(command, stdout=pipe, stderr=pipe, **more) as process:
        try:
            stdout, stderr = process.communicate(given, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def _can_fork(command: Sequence[str], environment: Mapping[str, str] | None) -> bool:
    """What Python reads when it starts must be as it was for the server."""
    if not FORKS or command[: len(COMMAND)] != COMMAND:
        return False
    return _for_python(os.environ if environment is None else environment) == _server_variables()


def _forked(
    arguments: Sequence[str],
    streams: Sequence[int],
    cwd: Any,
    environment: Mapping[str, str] | None,
) -> int:
    """The pid of the new process."""
    request = {
        "arguments": arguments,
        "cwd": str(Path.cwd()) if cwd is None else os.fspath(cwd),
        "environment": dict(os.environ if environment is None else environment),
    }
    answer, theirs = os.pipe()
    with _adopting, os.fdopen(answer, "rb") as told:
        _adopt_orphans(True)
        try:
            try:
                packet = json.dumps(request).encode()
                socket.send_fds(_server(), [packet], [*streams, theirs])
            finally:
                os.close(theirs)
            pid = told.read()
        finally:
            _adopt_orphans(False)
    if not pid:
        raise ChildProcessError("the forking server of the tests has ended")
    return int(pid)


def _adopt_orphans(on: bool) -> None:
    """Whether processes whose parent ends become children of this one."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


@cache
def _server() -> socket.socket:
    """The socket of the server of this process, which is started by the first who asks."""
    _server_variables()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # As `python -m broker` finds the broker: in the working directory, unless paths are safe.
    program = f"import runpy; runpy.run_path({str(SERVER)!r}, run_name='__main__')"
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


@cache
def _server_variables() -> dict[str, str]:
    return _for_python(os.environ)


def _for_python(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}
