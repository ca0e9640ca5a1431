"""One tenant asks for ten times its limit; measures what a neighbour within its limit notices.

    python3 scripts/neighbours.py [--rounds 4]

Prints the neighbour's appends and reads before and meanwhile, and whether it kept 90 % of its rate
and twice its p99. Makes its own environment in .neighbours/ and runs scripts/runs/neighbours.py on
this checkout's code.
"""

from handover import hand_over

if __name__ == "__main__":
    hand_over("runs.neighbours", work=".neighbours")
