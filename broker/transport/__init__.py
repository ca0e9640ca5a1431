"""How gRPC messages cross a socket in batches, for both sides of a connection.

Why a package of its own: the edge and the client need the same technique and may not import each
other. grpclib moves one message per await, which costs more than everything the broker does for
that message; here one await moves all that has arrived, and one socket write carries all that
goes out. It is also the only package that reaches below grpclib's public surface, and a test
fails loudly when grpclib or h2 change there.
"""

from broker.transport.batch_calls import CallStatus, ClientBatchStream, ServerBatchStream, open_call
from broker.transport.cancellation import restored_cancellation
from broker.transport.codec import MessageCodec, WireMessage
from broker.transport.dialling import Channel
from broker.transport.listener import Listener, ListenerLimits
from broker.transport.streams import BatchStream, CutShort, Stalled, StreamGone

__all__ = [
    "BatchStream",
    "CallStatus",
    "Channel",
    "ClientBatchStream",
    "CutShort",
    "Listener",
    "ListenerLimits",
    "MessageCodec",
    "ServerBatchStream",
    "Stalled",
    "StreamGone",
    "WireMessage",
    "open_call",
    "restored_cancellation",
]
