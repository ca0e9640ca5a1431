"""How long a broadcast takes, and whether a thousand that conflict end in one order everywhere.

    python3 scripts/broadcasts.py [--vchannels 16] [--broadcasts 300] [--conflicting 1000]

Makes its own environment in .chaos/ and hands over to scripts/agreement.py, which runs this
checkout's code, tells p50 and p99 of single broadcasts, of sixteen at once and the time of the
conflicting ones, and ends with 1 when two of them came in different orders.
"""

from handover import hand_over

if __name__ == "__main__":
    hand_over("agreement.py")
