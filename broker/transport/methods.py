"""Answer calls of unknown methods with UNIMPLEMENTED as a gRPC answer.

grpclib's own answer has no content type. Strict clients take that for a broken proxy and report
UNKNOWN, so they never learn that the server does not have the method.
"""

from collections.abc import Mapping
from typing import Never

import grpclib.server
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError


async def _refuse(_: "grpclib.server.Stream[bytes, bytes]") -> Never:
    raise GRPCError(Status.UNIMPLEMENTED, "Method not found")


# It raises before it reads, so the cardinality does not matter.
UNIMPLEMENTED = Handler(_refuse, Cardinality.STREAM_STREAM, bytes, bytes)


class Methods(dict[str, Handler]):
    """Handlers by path; `unknown` is that of every other path."""

    def __init__(self, handlers: Mapping[str, Handler], unknown: Handler = UNIMPLEMENTED) -> None:
        super().__init__(handlers)
        self._unknown = unknown

    def get(self, path: str, _: object = None) -> Handler:
        """The handler of this path, or the one that refuses."""
        return super().get(path, self._unknown)
