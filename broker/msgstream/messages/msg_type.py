"""The types of messages that streams carry, with the numbers of early Milvus."""

from enum import IntEnum


class MsgType(IntEnum):
    """What a message of a stream is: the `msg_type` of its header.

    Not the type of a record in the log, which is `broker.model.message.MessageType`.
    """

    UNDEFINED = 0

    # Collections.
    CREATE_COLLECTION = 100
    DROP_COLLECTION = 101
    HAS_COLLECTION = 102
    DESCRIBE_COLLECTION = 103
    SHOW_COLLECTIONS = 104
    GET_SYSTEM_CONFIGS = 105
    LOAD_COLLECTION = 106
    RELEASE_COLLECTION = 107
    CREATE_ALIAS = 108
    DROP_ALIAS = 109
    ALTER_ALIAS = 110

    # Partitions.
    CREATE_PARTITION = 200
    DROP_PARTITION = 201
    HAS_PARTITION = 202
    DESCRIBE_PARTITION = 203
    SHOW_PARTITIONS = 204
    LOAD_PARTITIONS = 205
    RELEASE_PARTITIONS = 206

    # Segments.
    SHOW_SEGMENTS = 250
    DESCRIBE_SEGMENT = 251
    LOAD_SEGMENTS = 252
    RELEASE_SEGMENTS = 253
    HANDOFF_SEGMENTS = 254
    LOAD_BALANCE_SEGMENTS = 255

    # Indexes.
    CREATE_INDEX = 300
    DESCRIBE_INDEX = 301
    DROP_INDEX = 302

    # Rows.
    INSERT = 400
    DELETE = 401
    FLUSH = 402

    # Queries.
    SEARCH = 500
    SEARCH_RESULT = 501
    GET_INDEX_STATE = 502
    GET_INDEX_BUILD_PROGRESS = 503
    GET_COLLECTION_STATISTICS = 504
    GET_PARTITION_STATISTICS = 505
    RETRIEVE = 506
    RETRIEVE_RESULT = 507
    WATCH_DM_CHANNELS = 508
    REMOVE_DM_CHANNELS = 509
    WATCH_QUERY_CHANNELS = 510
    REMOVE_QUERY_CHANNELS = 511

    # The data service.
    SEGMENT_INFO = 600

    # The system.
    TIME_TICK = 1200
    QUERY_NODE_STATS = 1201
    LOAD_INDEX = 1202
    REQUEST_ID = 1203
    REQUEST_TSO = 1204
    ALLOCATE_SEGMENT = 1205
    SEGMENT_STATISTICS = 1206
    SEGMENT_FLUSH_DONE = 1207
    DATA_NODE_TT = 1208
