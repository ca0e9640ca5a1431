"""How long pchannels take no appends when a process of their cluster is killed: kill -9, N times.

    python3 scripts/failover.py --kills 100              # a node each time, under `serve --nodes`
    python3 scripts/failover.py --kills 20 --coordinator  # the coordinator, started again at once

Makes its own environment in .chaos/ and hands over to scripts/gaps.py, which runs this checkout's
code, tells p50 and p99 of the gaps, and the slowest step by step.
"""

from handover import hand_over

if __name__ == "__main__":
    hand_over("gaps.py")
