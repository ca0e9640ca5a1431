"""Kills tasks, drivers and brokers under a Spark query with state; checks its rows one by one.

    python3 scripts/exactly_once.py [--kills 20] [--seed 1]

Makes its own environment in .exactly_once/, finds Java 17 or newer (or installs it where apt-get
works), and runs scripts/runs/exactly_once.py on this checkout's code. Exits with 1 when the rows in
the sink are not exactly the rows that the log asks for.
"""

from handover import hand_over_with_spark

if __name__ == "__main__":
    hand_over_with_spark("runs.exactly_once")
