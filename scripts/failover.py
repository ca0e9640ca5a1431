"""Measures how long pchannels take no appends after a process of their cluster gets kill -9.

    python3 scripts/failover.py --kills 100               # a node each time, under `serve --nodes`
    python3 scripts/failover.py --kills 20 --coordinator  # the coordinator, restarted at once
    python3 scripts/failover.py --coordinators 2          # the one that leads; the other takes over
    python3 scripts/failover.py --coordinators 2 --hosts  # the same, on hosts of their own
    python3 scripts/failover.py --rolling 3               # restarts all processes, one by one

Makes its own environment in .chaos/ and runs scripts/runs/failover.py on this checkout's code.
Prints p50 and p99 of the gaps, and the slowest failovers step by step.
"""

import sys

from handover import hand_over

EXTRAS = "arrow,compression"

if __name__ == "__main__":
    # With --hosts the log is in Kafka; etcd and Kafka run beside the processes.
    hand_over("runs.failover", extras=f"{EXTRAS},kafka" if "--hosts" in sys.argv else EXTRAS)
