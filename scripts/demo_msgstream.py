"""Shows message streams at work: flights are inserted and deleted through both tick barriers.

    python3 scripts/demo_msgstream.py [--flights 20000]

Starts a broker. Two proxies insert flights that left New York in 2013, delete every tenth, and
report ticks; two write nodes apply the packs of the stream and report theirs; a reader, a process
of its own, is killed with kill -9 in the middle and continues at its last checkpoint. At the end
its packs must be the input, once, and Spark must continue where a pack ended. Makes its own
environment in .demo/ and runs scripts/runs/demo_msgstream.py.
"""

from handover import hand_over

if __name__ == "__main__":
    hand_over("runs.demo_msgstream", work=".demo", extras="demo,arrow,spark")
