"""Tidemark: a write-ahead-log broker made of actors.

This package owns everything but the actor runtime (`actors`) and the wire formats (`schemas`).
"""

from broker.own_packages import refuse_hidden as _refuse_hidden

_refuse_hidden()
