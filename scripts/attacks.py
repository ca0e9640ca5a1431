"""Attacks a broker in every way of tests/limits/hostile, beside a client that behaves.

    python3 scripts/attacks.py [--seconds 5] [--only rapid_reset,ping_flood]

Prints for each attack the rate and latency of appends before it and during it, and what it got.
Makes its own environment in .attacks/ and runs scripts/runs/attacks.py on this checkout's code.
"""

from handover import hand_over

if __name__ == "__main__":
    hand_over("runs.attacks", work=".attacks")
