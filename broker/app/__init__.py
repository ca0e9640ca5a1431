"""Wires the packages into a process: a broker, a coordinator or a node.

`run_*.py` has one role each; the other modules are shared by roles.
"""

from broker.app.listening import bind
from broker.app.process import serve, serve_coordinator, serve_node
from broker.app.process_errors import CannotGoOn, CannotStart, LeadLost
from broker.app.run_single import run_broker
from broker.app.running_process import Broker

__all__ = [
    "Broker",
    "CannotGoOn",
    "CannotStart",
    "LeadLost",
    "bind",
    "run_broker",
    "serve",
    "serve_coordinator",
    "serve_node",
]
