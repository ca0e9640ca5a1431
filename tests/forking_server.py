"""Imports the broker once, and forks a process for each `python -m broker ...` of the tests.

A starting broker spends a second of processor time on imports alone, and the tests start hundreds.
Run as a program; its argument is the descriptor of a socket, see `forked_process`. A request is one
packet: JSON, and the descriptors of stdin, stdout, stderr and of a pipe for the process's pid.
"""

import json
import os
import runpy
import signal
import socket
import sys
from typing import Any

REQUEST_BYTES_MAX = 1 << 17
DESCRIPTORS = 4


def main() -> None:
    """Serve until the tests close their end; in a forked process, be the command that is asked."""
    _import_all()
    # Ctrl-C is for the processes of a test, and those in between are buried by the system.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        while True:
            text, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, DESCRIPTORS)
            if not text:
                return
            if os.fork() == 0:
                break
            for each in descriptors:
                os.close(each)
    between = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == between:  # until the tests have adopted it
        os.sched_yield()
    *streams, answer = descriptors
    os.write(answer, str(os.getpid()).encode())
    os.close(answer)
    _become(json.loads(text), streams)


def _become(request: dict[str, Any], streams: list[int]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    if request["cwd"] is not None:
        os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["broker", *request["arguments"]]
    runpy.run_module("broker", run_name="__main__", alter_sys=True)


def _import_all() -> None:
    """What servers and commands import when they run, as a server does it."""
    from broker.cli.fast_imports import fast_imports  # noqa: PLC0415

    with fast_imports():
        import broker.cli.main  # noqa: PLC0415
        import broker.cli.serving  # noqa: PLC0415
    # What most commands import, rich among it.
    import broker.cli.client_connection  # noqa: PLC0415
    import broker.cli.consuming  # noqa: PLC0415
    import broker.cli.producing  # noqa: PLC0415
    import broker.cli.show.definition_tables  # noqa: F401, PLC0415


if __name__ == "__main__":
    main()
