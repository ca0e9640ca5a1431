"""Measures how long broadcasts take, and checks that conflicting ones have one order everywhere.

    python3 scripts/broadcasts.py [--vchannels 16] [--broadcasts 300] [--conflicting 1000]

Makes its own environment in .chaos/ and runs scripts/runs/broadcasts.py on this checkout's code.
Prints p50 and p99 of broadcasts one by one and sixteen at once, and the time of the conflicting
ones; exits with 1 when two conflicting broadcasts are in different orders on two vchannels.
"""

from handover import hand_over

if __name__ == "__main__":
    hand_over("runs.broadcasts")
