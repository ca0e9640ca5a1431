"""What a call of a method that nobody serves gets: UNIMPLEMENTED, as a gRPC answer.

Owns nothing. grpclib's own answer has no content type, which strict clients take for that of a
broken proxy: they report UNKNOWN, and never learn that this server is merely older than they are.
"""

from typing import Never

import grpclib.server
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError


async def _refuse(_: "grpclib.server.Stream[bytes, bytes]") -> Never:
    raise GRPCError(Status.UNIMPLEMENTED, "Method not found")


NOBODYS = Handler(_refuse, Cardinality.STREAM_STREAM, bytes, bytes)


class Methods(dict[str, Handler]):
    """Handlers by path, one for every path."""

    def get(self, path: str, _: object = None) -> Handler:
        """The handler served at this path, or the one that refuses."""
        return super().get(path, NOBODYS)
