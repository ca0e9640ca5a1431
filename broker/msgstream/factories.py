"""Makes streams over one log. They share it, and each has a dispatcher of its own."""

from collections.abc import Mapping
from typing import Any, Protocol

from broker.client import Client
from broker.client.errors import BadTarget
from broker.msgstream.backends.log_backend import LogBackend
from broker.msgstream.backends.memory_backend import MemoryBackend
from broker.msgstream.backends.stream_backend import StreamBackend
from broker.msgstream.messages.unmarshal_dispatcher import (
    MemUDFactory,
    ProtoUDFactory,
    UnmarshalDispatcherFactory,
)
from broker.msgstream.msg_stream import MsgStream
from broker.msgstream.stream_options import StreamOptions, options_of
from broker.msgstream.tt_msg_stream import TtMsgStream

DEFAULT_OPTIONS = StreamOptions()


class MsgStreamFactory(Protocol):
    """Makes streams. `set_params` changes those that are made afterwards."""

    def set_params(self, params: Mapping[str, Any]) -> None: ...

    def new_msg_stream(self) -> MsgStream: ...

    def new_tt_msg_stream(self) -> TtMsgStream: ...


class BackendFactory:
    """See MsgStreamFactory: over any backend, with any dispatchers."""

    def __init__(
        self,
        backend: StreamBackend,
        dispatchers: UnmarshalDispatcherFactory,
        options: StreamOptions = DEFAULT_OPTIONS,
    ) -> None:
        self._backend = backend
        self._dispatchers = dispatchers
        self.options = options

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Change options by their names; unknown ones are ignored. BadTarget for a bad value."""
        if not isinstance(params, Mapping):
            raise BadTarget(f"parameters are a mapping, not {type(params).__name__}")
        self.options = options_of(dict(params), self.options)

    def new_msg_stream(self) -> MsgStream:
        """A plain stream: each message is a pack."""
        return MsgStream(self._backend, self._dispatchers.new_unmarshal_dispatcher(), self.options)

    def new_tt_msg_stream(self) -> TtMsgStream:
        """A time tick stream: a pack has all messages of one window."""
        return TtMsgStream(
            self._backend, self._dispatchers.new_unmarshal_dispatcher(), self.options
        )


class TidemarkMsgStreamFactory(BackendFactory):
    """Streams on the vchannels of a broker, in the place of early Milvus's Pulsar streams.

    async with connect("127.0.0.1:19531") as log:
        stream = TidemarkMsgStreamFactory(log).new_tt_msg_stream()
    """

    def __init__(self, log: Client, options: StreamOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(LogBackend(log), ProtoUDFactory(), options)


class MemMsgStreamFactory(BackendFactory):
    """Streams in the memory of this process; messages pass as objects, unless `encoded`."""

    def __init__(
        self,
        memory: MemoryBackend | None = None,
        options: StreamOptions = DEFAULT_OPTIONS,
        *,
        encoded: bool = False,
    ) -> None:
        self.memory = memory or MemoryBackend()
        super().__init__(self.memory, ProtoUDFactory() if encoded else MemUDFactory(), options)
