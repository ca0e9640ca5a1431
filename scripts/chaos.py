"""Runs a coordinator and its nodes under load and seeded faults, then checks every promise.

    python3 scripts/chaos.py --seed 7 --minutes 30 [--faults kill-node,cut] [--nodes 3] [--keep DIR]
    python3 scripts/chaos.py --hosts --minutes 30   # log in Kafka, metadata in etcd; needs root

Makes its own environment in .chaos/ and runs scripts/runs/chaos.py on this checkout's code. Prints
what happened; exits with 1 when a promise was broken.
"""

import sys

from handover import hand_over

if __name__ == "__main__":
    if "--hosts" in sys.argv:
        hand_over("runs.chaos", work=".chaos/hosts", extras="dev")
    hand_over("runs.chaos")
