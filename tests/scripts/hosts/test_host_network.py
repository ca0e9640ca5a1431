"""A network of hosts in a process of its own, which leaves the machine's for it."""

import subprocess
import sys
from pathlib import Path

from tests.missing_part import missing_part

ROOT = Path(__file__).parents[3] / "scripts"
NOT_HERE = 3
CHILD = """
import subprocess, sys
sys.path.append({root!r})
from hosts.host_network import host_network
from hosts.namespaces import NoNamespaces

KNOCK = "import socket; s = socket.socket(); s.settimeout({}); print(s.connect_ex(('{}', 9)))"

def knock(within_s):
    words = KNOCK.format(within_s, network.hosts["b"].ip)
    command = [*network.hosts["a"].inside, sys.executable, "-c", words]
    return int(subprocess.run(command, capture_output=True, check=True).stdout)

try:
    with host_network(["a", "b"], 1) as network:
        print("whole", knock(30))
        for sender, receiver in (("a", "b"), ("b", "a")):
            network.cut("x", [sender], [receiver])
            print("cut", knock(0.3))
            network.heal("x")
        network.delay("d", "b", 0.01)
        network.lose("l", "a", 0.2)
        print("worse", knock(30))
        network.heal("d")
        network.heal("l")
        print("healed", knock(30))
except NoNamespaces as reason:
    print(reason)
    sys.exit(3)
"""
REFUSED, TIMED_OUT = 111, 11
"""Somebody answered that nobody listens; nobody answered."""


def test_hosts_see_each_other_unless_they_are_cut_off_one_way_or_the_other() -> None:
    child = CHILD.replace("{root!r}", repr(str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", child],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    if done.returncode == NOT_HERE:
        missing_part(done.stdout)
    assert done.returncode == 0, done.stderr
    told = [line.split() for line in done.stdout.splitlines()]
    assert told == [
        ["whole", str(REFUSED)],
        ["cut", str(TIMED_OUT)],
        ["cut", str(TIMED_OUT)],
        ["worse", str(REFUSED)],
        ["healed", str(REFUSED)],
    ]
