"""Opens a thousand streams with one token, revokes it, and measures how long the last one lives.

With --keys the token is a JWT, and its key is taken out of the file of keys instead.

    python3 scripts/revocation.py [--streams 1000] [--rounds 5] [--nodes 2] [--keys]

Prints, for streams on the process that answers the revocation and for streams on other nodes, the
time until the last one had ended, and whether it was within 2 s. Makes its own environment in
.revocation/ and runs scripts/runs/revocation.py on this checkout's code.
"""

from handover import hand_over

if __name__ == "__main__":
    hand_over("runs.revocation", work=".revocation")
