"""Source to sink through Spark's state while task, driver and broker are killed: each row once?

    python3 scripts/exactly_once.py [--kills 20] [--seed 1]

Makes its own environment in .exactly_once/, finds Java >= 17 or installs it where apt-get works,
and hands over to scripts/kills.py, which runs this checkout's code, tells each kill, and ends with
1 when the rows that came out are not those that the log asks for.
"""

from handover import hand_over_with_spark

if __name__ == "__main__":
    hand_over_with_spark("kills.py")
