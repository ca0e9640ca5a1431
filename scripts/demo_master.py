"""Shows the master at work: definitions change and processes die while flights are loaded.

    python3 scripts/demo_master.py [--flights 336776] [--rate 12000]

Starts a coordinator and three nodes. Two proxies append the flights that left New York in 2013,
month by month, to partitions that are created meanwhile; two write nodes and a reader follow. A
node and the coordinator are killed with kill -9. At the end every flight must be in its partition
and in one segment, once. Makes its own environment in .demo/ and runs scripts/runs/demo_master.py.
"""

from handover import hand_over

if __name__ == "__main__":
    hand_over("runs.demo_master", work=".demo", extras="demo,arrow")
