"""Carries out one write when the process that left it has ended; run by `witness.py`.

    python -m broker.etcd.last_write    with lines on its standard input: writes, or the word OVER

It has all that it needs in memory before it waits, and has called etcd once: others wait for the
write, and on a busy machine an interpreter takes seconds to start. It imports only what a call to
etcd needs.
"""

import asyncio
import json
import signal
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from broker.etcd.etcd_errors import Unanswered
from broker.etcd.members import Members
from broker.etcd.password_file import etcd_password
from broker.etcd.place import etcd_place
from broker.etcd.requests import RANGE, TXN
from broker.ports.meta import MetaError
from broker.transport.codec import WireMessage
from broker.transport.tls import BadTls, ClientTls, Tls
from schemas.generated.etcdserverpb import RangeRequest, RangeResponse, TxnRequest, TxnResponse

MODULE: Final = "broker.etcd.last_write"
OVER: Final = b"over\n"
"""Ends it without a write."""
IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""A terminal or a service manager sends them to all processes of the one that it stops."""
REHEARSAL_S: Final = 2.0

A = TypeVar("A", bound=WireMessage)


@dataclass(frozen=True, slots=True)
class LastWrite:
    """A write, and how its etcd is reached. It names files with secrets, and contains none.

    `request`: a TxnRequest with a condition, in hexadecimal digits; it may be carried out again.
    `limit_s`: the longest time for it. `subject`: whose end it records, for the log.
    """

    url: str
    request: str
    limit_s: float
    subject: str
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    password_file: str | None = None

    @classmethod
    def of(cls, line: bytes) -> Self:
        """The write that a line of `main` names."""
        fields: dict[str, Any] = json.loads(line)
        return cls(**fields)

    @property
    def line(self) -> bytes:
        """What `of` reads."""
        return json.dumps(asdict(self)).encode() + b"\n"

    async def carry_out(self) -> bool:
        """Whether it took effect; not when another write came before. MetaError, Unanswered."""
        answer = await self._call(TXN, self._request(), TxnResponse, self.limit_s)
        return answer.succeeded

    async def rehearse(self) -> None:
        """Read what the write expects, as a trial. Raises MetaError, Unanswered."""
        expected = self._request().compare[0].key
        await self._call(RANGE, RangeRequest(key=expected), RangeResponse, REHEARSAL_S)

    def _request(self) -> TxnRequest:
        return TxnRequest.parse(bytes.fromhex(self.request))

    async def _call(self, path: str, request: WireMessage, answer: type[A], limit_s: float) -> A:
        file = None if self.password_file is None else Path(self.password_file)
        members = Members(etcd_place(self.url), self._tls(), partial(etcd_password, file))
        try:
            return await members.call(path, request, answer, call_s=limit_s)
        finally:
            members.close()

    def _tls(self) -> ClientTls | None:
        files = (self.ca, self.cert, self.key)
        if files == (None, None, None):
            return None
        try:
            return ClientTls(Tls(*files))
        except BadTls as error:
            raise MetaError(f"TLS of meta: {error}") from error


def main() -> int:
    """Wait for the end of standard input, then write; 0 when nothing is left to do."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    last: LastWrite | None = None
    while line := sys.stdin.buffer.readline():
        if line == OVER or not line.endswith(b"\n"):
            return 0
        last = LastWrite.of(line)
        _rehearse(last)
    return 0 if last is None else _carry_out(last)


def _rehearse(last: LastWrite) -> None:
    try:
        asyncio.run(last.rehearse())
    except (MetaError, Unanswered) as error:
        _say(f"the witness of {last.subject} finds no metadata: {error}")


def _carry_out(last: LastWrite) -> int:
    try:
        done = asyncio.run(last.carry_out())
    except (MetaError, Unanswered) as error:
        _say(f"{last.subject} has ended, which could not be recorded: {error}")
        return 1
    if done:
        _say(f"{last.subject} has ended, which is recorded now")
    return 0


def _say(words: str) -> None:
    sys.stderr.write(f"tidemark: {words}\n")


if __name__ == "__main__":
    sys.exit(main())
