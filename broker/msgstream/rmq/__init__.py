"""Streams over RocksMQ, the queues that are embedded in the process."""

from broker.msgstream.rmq.rmq_backend import QueueFailed, RmqBackend
from broker.msgstream.rmq.rmq_factory import RmqMsgStreamFactory

__all__ = ["QueueFailed", "RmqBackend", "RmqMsgStreamFactory"]
