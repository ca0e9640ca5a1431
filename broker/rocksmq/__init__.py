"""RocksMQ: the queues of early Milvus, embedded in one process and durable in one folder.

Needs the extra `rocksmq`; see `RocksMQ`, and the README beside this file.
"""

from broker.core.rocksmq.page_retention import PageRules
from broker.model.rocksmq.queue_messages import ConsumerMessage, ProducerMessage, QueueChannelView
from broker.rocksmq.message_iterator import MessageIterator
from broker.rocksmq.queue_errors import (
    BadQueueArgument,
    BadQueueName,
    ChannelExists,
    ConsumerGroupExists,
    FolderInUse,
    FolderRefused,
    FolderVersionRefused,
    RocksdictMissing,
    RocksMQClosed,
    RocksMQError,
    RocksMQFailed,
    RocksMQFull,
    SeekOutOfRange,
    UnknownChannel,
    UnknownConsumerGroup,
)
from broker.rocksmq.queue_ids import IDAllocator
from broker.rocksmq.rocks_mq import RocksMQ
from broker.rocksmq.rocks_queue import RocksQueue

__all__ = [
    "BadQueueArgument",
    "BadQueueName",
    "ChannelExists",
    "ConsumerGroupExists",
    "ConsumerMessage",
    "FolderInUse",
    "FolderRefused",
    "FolderVersionRefused",
    "IDAllocator",
    "MessageIterator",
    "PageRules",
    "ProducerMessage",
    "QueueChannelView",
    "RocksMQ",
    "RocksMQClosed",
    "RocksMQError",
    "RocksMQFailed",
    "RocksMQFull",
    "RocksQueue",
    "RocksdictMissing",
    "SeekOutOfRange",
    "UnknownChannel",
    "UnknownConsumerGroup",
]
