"""Makes streams over the RocksMQ of this process."""

from broker.msgstream.factories import DEFAULT_OPTIONS, BackendFactory
from broker.msgstream.messages.unmarshal_dispatcher import ProtoUDFactory
from broker.msgstream.rmq.rmq_backend import RmqBackend
from broker.msgstream.stream_options import StreamOptions
from broker.rocksmq import RocksMQ


class RmqMsgStreamFactory(BackendFactory):
    """Streams on the channels of one open folder, which the streams share.

    async with await RocksMQ.open("queues") as queues:
        stream = RmqMsgStreamFactory(queues).new_tt_msg_stream()
    """

    def __init__(self, queues: RocksMQ, options: StreamOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(RmqBackend(queues), ProtoUDFactory(), options)
