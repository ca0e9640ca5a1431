"""Moves money on 8 vchannels while Spark adds up: is the sum the same after every micro-batch?

    python3 scripts/transfers.py [--batches 40] [--kills 2] [--beside 20] [--seed 1]

Each transfer is a broadcast to two vchannels, or a staged batch on two; broker and driver are
killed in turn. Then the same query reads the same log with an offset for each vchannel.
`--batches 1000 --kills 10` is the long form. Makes its own environment in .exactly_once/, finds
Java 17 or newer (or installs it where apt-get works), and runs scripts/runs/transfers.py on this
checkout's code. Exits with 0 when no micro-batch splits a transfer, and some of those with an
offset for each vchannel do.
"""

from handover import hand_over_with_spark

if __name__ == "__main__":
    hand_over_with_spark("runs.transfers")
