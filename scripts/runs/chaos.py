"""Runs a cluster under load and seeded faults, then checks every promise."""

import argparse
import logging
import os
import sys
import tempfile
from pathlib import Path

import anyio
from hosts.etcd_program import fetched_etcd
from hosts.kafka_members import fetch_kafka

from tests.chaos.storm.plan import ON_HOSTS, ON_ONE_MACHINE, make_plan
from tests.chaos.storm.run import ONE_MACHINE, Options, Stage, run_storm
from tests.chaos.storm.sabotages import KAFKA_BUGS, SABOTAGES
from tests.chaos.storm.table import table


def main() -> int:
    """1 when a promise was broken; with a planted bug, 1 when no checker noticed it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument(
        "--faults", default="", help="faults to inject, separated by commas; default: all"
    )
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument(
        "--hosts",
        action="store_true",
        help="the log in three Kafka nodes and the metadata in three etcd members, each process on"
        " a host of its own: a network namespace; needs root, and gets Java, Kafka and etcd where"
        " they are missing",
    )
    parser.add_argument(
        "--sabotage",
        default="",
        help="plant a bug and report which checker notices it: " + ", ".join(SABOTAGES),
    )
    parser.add_argument("--keep", type=Path, help="keep data and logs in this new folder")
    parser.add_argument("--tell", action="store_true", help="log each fault when it is over")
    given = parser.parse_args()
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    logging.getLogger("tests.chaos").setLevel(logging.INFO if given.tell else logging.ERROR)
    faults = tuple(filter(None, given.faults.split(",")))
    deck = ON_HOSTS if given.hosts else ON_ONE_MACHINE
    try:
        make_plan(given.seed, 1.0, faults, deck)
    except ValueError as error:
        parser.error(str(error))
    if given.sabotage and given.sabotage not in SABOTAGES:
        parser.error(f"no such bug: {given.sabotage}; choose one of {sorted(SABOTAGES)}")
    if given.sabotage in KAFKA_BUGS and not given.hosts:
        parser.error(f"{given.sabotage} is a bug of the log in Kafka: add --hosts")
    seconds = given.minutes * 60
    options = Options(given.seed, seconds, faults, given.nodes, sabotage=given.sabotage, deck=deck)
    with tempfile.TemporaryDirectory(prefix="storm-") as folder:
        if given.keep:
            given.keep.mkdir(parents=True)
        print(f"seed {given.seed}: {options.seconds:.0f} s of faults, then up to a minute of calm")
        stage = stage_of(hosts=given.hosts)
        report = anyio.run(run_storm, options, given.keep or Path(folder), stage)
    print("\n".join(table(report)))
    if given.sabotage:
        print("\n".join(report.noticed()) or f"{given.sabotage} was not noticed")
        return int(not report.violations)
    if report.violations:
        began_s = report.faults[0][0] if report.faults else 0.0
        print(
            "\n".join(f"{at_s:9.3f} (+{at_s - began_s:.1f}) {what}" for at_s, what in report.faults)
        )
        print("\n".join(report.failures()))
    return int(bool(report.violations))


def stage_of(*, hosts: bool) -> Stage:
    """Where the storm takes place. Hosts need clients of Kafka, which others do without."""
    if not hosts:
        return ONE_MACHINE
    from tests.chaos.storm.hosts.host_storm import HOSTS  # noqa: PLC0415
    from tests.kafka_node import DOWNLOADS  # noqa: PLC0415

    # The hosts see nothing but each other.
    fetch_kafka(DOWNLOADS)
    etcd = Path(fetched_etcd(DOWNLOADS / "etcd")).parent
    os.environ["PATH"] = f"{etcd}{os.pathsep}{os.environ['PATH']}"
    return HOSTS


if __name__ == "__main__":
    sys.exit(main())
