"""A whole cluster on this machine: Kafka, etcd, two coordinators, three nodes, and Spark.

    python3 scripts/cluster.py up [--loopback] [--quorum 3]    # it stays there
    python3 scripts/cluster.py demo    # flights through Spark; a host dies, a link is cut
    python3 scripts/cluster.py down

Each host is a network namespace where root may make them, else all are loopback. Makes its own
environment in .cluster/, which also has data and logs. Needs Java >= 17 and etcd, and installs them
where apt-get works; fetches Kafka's jars (44 MB) once.
"""

import argparse
import os

from handover import hand_over_with_spark
from hosts.kept_cluster import CLUSTER, end_cluster

EXTRAS = "demo,kafka,spark"


def main() -> None:
    """End the cluster here; `up` and `demo` need what is installed first."""
    words = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(
        description=words[0],
        epilog="\n".join(words[1:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("up", "demo", "down"))
    what = parser.parse_known_args()[0].what
    if what != "down":
        os.environ["CLUSTER_FOLDER"] = str(CLUSTER)
        hand_over_with_spark("runs.cluster", work=".cluster", extras=EXTRAS)
    parser.parse_args()
    ended = end_cluster(CLUSTER)
    print(f"ended {len(ended)} processes: {', '.join(ended)}" if ended else "no cluster runs here")


if __name__ == "__main__":
    main()
