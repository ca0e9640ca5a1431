"""Fuzzes every parser of bytes from outside, each in a process of its own.

    python3 scripts/fuzz.py                                 100,000 inputs for each target
    python3 scripts/fuzz.py --inputs 1000000 --targets frames,answers
    python3 scripts/fuzz.py --total 10000000                so many inputs over all targets
    python3 scripts/fuzz.py --targets frames --input FILE   one input, once

Makes its own environment in .fuzz/ and runs scripts/runs/fuzz.py on this checkout's code. Exits
with 1 when an input raised, took more than a second, or made the process grow by over 256 MiB.
"""

from handover import hand_over

if __name__ == "__main__":
    hand_over("runs.fuzz", work=".fuzz", extras="arrow,compression,fuzz")
