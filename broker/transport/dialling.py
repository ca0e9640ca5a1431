# ruff: noqa: SLF001 - this package is the one that may know grpclib's inside (see its docstring)
"""A gRPC channel whose server may send large frames, and whose frames nobody spells out.

Owns: what differs from grpclib's channel in the first bytes of a connection. Never looks at a call.
"""

import asyncio

import grpclib.client
from grpclib.protocol import H2Protocol
from h2.settings import SettingCodes

from broker.transport.data_frames import take_data
from broker.transport.listener import HTTP_FRAME_BYTES_MAX
from broker.transport.untraced import untrace


class Channel(grpclib.client.Channel):
    """As grpclib's."""

    async def __connect__(self) -> H2Protocol:
        """grpclib's; but ConnectionResetError when the connection is lost before it can be used.

        grpclib hands it out all the same, and whoever asks gets an AttributeError.
        """
        protocol = await super().__connect__()
        if not self._connected:
            raise ConnectionResetError(f"{self._host}:{self._port} ended the connection at once")
        return protocol

    def _protocol_factory(self) -> H2Protocol:
        plain = super()._protocol_factory()
        return DialledConnection(plain.handler, plain.config, plain.h2_config)


class DialledConnection(H2Protocol):
    """One connection to a server: grpclib's protocol with another offer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """grpclib's, and the size of frames we take, which a server may keep to or stay below."""
        super().connection_made(transport)
        h2_connection = self.connection._connection
        untrace(h2_connection)
        h2_connection.update_settings({SettingCodes.MAX_FRAME_SIZE: HTTP_FRAME_BYTES_MAX})
        self.connection.flush()

    def data_received(self, data: bytes) -> None:
        """grpclib's, but for frames of data."""
        taken = take_data(self.connection._connection, self.processor.streams, data)
        if taken < len(data):
            super().data_received(data[taken:])
