"""Puts the parts together: the only package that knows every other one.

One file is one role a process can play; what several roles need stands beside them.
"""

from broker.app.listening import bind
from broker.app.process import serve, serve_coordinator, serve_node
from broker.app.process_errors import CannotStart, LeadLost
from broker.app.run_single import run_broker
from broker.app.running_process import Broker

__all__ = [
    "Broker",
    "CannotStart",
    "LeadLost",
    "bind",
    "run_broker",
    "serve",
    "serve_coordinator",
    "serve_node",
]
