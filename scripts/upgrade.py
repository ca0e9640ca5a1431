"""Upgrades a cluster of an older release, one process after the other, while it serves.

    python3 scripts/upgrade.py                      # from the release before Kafka and etcd
    python3 scripts/upgrade.py --from COMMIT        # from the code of another commit

Takes the older code out of this repository's history, so the clone must have it. Makes its own
environment in .chaos/ and runs scripts/runs/upgrade.py.
"""

from handover import hand_over

if __name__ == "__main__":
    hand_over("runs.upgrade")
