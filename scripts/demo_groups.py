"""Shows consumer groups at work: flights are shared among four workers, whatever happens to these.

    python3 scripts/demo_groups.py [--flights 336776]

Starts a broker and four worker processes of one group. Each takes flights that left New York in
2013, and appends what it made of them together with its acknowledgement. One worker is killed with
kill -9, one is so slow that its leases end, and one message is no flight at all. At the end every
flight must have been processed once, and the poison message must lie in the dead letters. Makes its
own environment in .demo/ and runs scripts/runs/demo_groups.py.
"""

from handover import hand_over

if __name__ == "__main__":
    hand_over("runs.demo_groups", work=".demo", extras="demo,arrow")
