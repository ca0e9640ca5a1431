# ruff: noqa: SLF001 - this package is the one that may know grpclib's inside (see its docstring)
"""A gRPC channel that accepts large frames and reads DATA frames on the fast path."""

import asyncio

import grpclib.client
from grpclib.protocol import H2Protocol
from h2.settings import SettingCodes

from broker.transport.data_frames import take_data
from broker.transport.listener import HTTP_FRAME_BYTES_MAX
from broker.transport.untraced import untrace


class Channel(grpclib.client.Channel):
    """grpclib's channel, with the connections of this package."""

    async def __connect__(self) -> H2Protocol:
        """Connect. Raises ConnectionResetError when the connection is lost before its first use.

        grpclib returns such a connection, and its first call raises AttributeError.
        """
        protocol = await super().__connect__()
        if not self._connected:
            raise ConnectionResetError(f"{self._host}:{self._port} ended the connection at once")
        return protocol

    def _protocol_factory(self) -> H2Protocol:
        plain = super()._protocol_factory()
        return DialledConnection(plain.handler, plain.config, plain.h2_config)


class DialledConnection(H2Protocol):
    """One connection to a server: grpclib's protocol with other HTTP/2 settings."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As grpclib's; also announces the largest frame accepted."""
        super().connection_made(transport)
        h2_connection = self.connection._connection
        # grpclib has no setting for the frame size, so a second SETTINGS frame follows its first.
        untrace(h2_connection)
        h2_connection.update_settings({SettingCodes.MAX_FRAME_SIZE: HTTP_FRAME_BYTES_MAX})
        self.connection.flush()

    def data_received(self, data: bytes) -> None:
        """As grpclib's, with the fast path for DATA frames."""
        taken = take_data(self.connection._connection, self.processor.streams, data)
        if taken < len(data):
            super().data_received(data[taken:])
