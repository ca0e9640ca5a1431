"""Send and receive gRPC messages in batches, for both ends of a connection.

A package of its own, because edge and client need the same technique and may not import each other.
grpclib moves one message per await, which costs more than everything the broker does for that
message. Here one await moves all that has arrived, and one socket write sends all that goes out.
Only this package uses grpclib's and h2's internals; a test fails when those change.
"""

from broker.transport.batch_calls import (
    CallStatus,
    ClientBatchStream,
    ServerBatchStream,
    open_call,
    pay_for_refusal,
)
from broker.transport.cancellation import separate_wakeups
from broker.transport.codec import MessageCodec, WireMessage
from broker.transport.dialling import NOT_READ, Channel, NotConnected
from broker.transport.header_logs import keep_headers_out
from broker.transport.listener import Listener, ListenerLimits
from broker.transport.streams import BatchStream, CutShort, Stalled, StreamGone
from broker.transport.unary_calls import unary_call

__all__ = [
    "NOT_READ",
    "BatchStream",
    "CallStatus",
    "Channel",
    "ClientBatchStream",
    "CutShort",
    "Listener",
    "ListenerLimits",
    "MessageCodec",
    "NotConnected",
    "ServerBatchStream",
    "Stalled",
    "StreamGone",
    "WireMessage",
    "open_call",
    "pay_for_refusal",
    "separate_wakeups",
    "unary_call",
]

keep_headers_out()
