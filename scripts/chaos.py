"""A coordinator and its nodes under load and under faults from a seed, and whether promises hold.

    python3 scripts/chaos.py --seed 7 --minutes 30 [--faults kill-node,cut] [--nodes 3] [--keep DIR]

Makes its own environment in .chaos/ and hands over to scripts/storm.py, which runs this checkout's
code, prints what happened, and ends with 1 when anything was violated.
"""

from handover import hand_over

if __name__ == "__main__":
    hand_over("storm.py")
