"""Pulls from one reader's Scanner, whichever incarnation of it runs.

Every Pull carries the reader's cursor. So a Scanner that was restarted, or that closed because
nobody pulled for long, continues where the reader is.

Next: broker/edge/tidemark/read_batches.py
"""

from dataclasses import replace
from typing import Final

import anyio

from actors import ActorDied, ActorError, AskTimeout, Ref, StaleTerm
from broker.edge.rpc.proxies import Proxy
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.position import FromAll, ReadPosition
from broker.node.directory_messages import FindScanner, OpenScanner
from broker.node.scanner_messages import CloseScanner, Delivery, Pull, ScannerMessage

PULL_S: Final = 10.0
PULL_TRIES_MAX: Final = 20
RETRY_PAUSE_S: Final = 0.05
CREDIT_BYTES_MIN: Final = 32 * 1024
"""Pulled even when the peer's window holds less, so that small windows do not make tiny batches."""


class ScannerProxy:
    """One reader's Scanner. `opening` is the request that opened it, to open another one."""

    __slots__ = ("_directory", "_opening", "_scanner")

    def __init__(
        self, directory: Proxy, opening: OpenScanner, scanner: Ref[ScannerMessage]
    ) -> None:
        self._directory = directory
        self._opening = opening
        self._scanner = scanner

    async def pull(self, cursor: ReadPosition, credit_bytes: int) -> Delivery:
        """The next delivery, of about `credit_bytes` or CREDIT_BYTES_MIN. Raises Refused."""
        pull = Pull(cursor, max(CREDIT_BYTES_MIN, credit_bytes))
        lost = ""
        for _ in range(PULL_TRIES_MAX):
            try:
                answer = await self._scanner.ask(pull, deadline_s=PULL_S)
            # The same Pull is sent again: it has the cursor, so nothing is skipped.
            except AskTimeout as error:
                lost = str(error)
            except (ActorDied, StaleTerm) as error:
                lost = str(error)
                await self._find_scanner_again(lost)
            else:
                if isinstance(answer, Refusal):
                    raise Refused(answer.code, answer.cause)
                return answer
        raise Refused(
            StreamingCode.INNER, f"the reader's scanner does not answer ({lost}); try again"
        )

    async def _find_scanner_again(self, lost: str) -> None:
        """Raises Refused(INNER), as Milvus does when the log behind a consumer closes."""
        await anyio.sleep(RETRY_PAUSE_S)
        found = await self._directory.ask(FindScanner(self._scanner.path))
        if not isinstance(found, Refusal):
            self._scanner = found
        elif found.code is not StreamingCode.INNER:  # INNER: it is being restarted; look again
            self._scanner = await self._another_scanner(lost)

    async def _another_scanner(self, lost: str) -> Ref[ScannerMessage]:
        """Open a new Scanner: the old one closed because this reader did not pull for long.

        Its start policy does not matter, since every Pull carries the cursor.
        """
        opened = await self._directory.ask(replace(self._opening, policy=FromAll()))
        if isinstance(opened, Refusal):
            raise Refused(StreamingCode.INNER, f"{opened.cause} ({lost})")
        return opened.scanner

    def release(self) -> None:
        """Close the Scanner: nothing pulls from it any more."""
        try:
            self._scanner.tell(CloseScanner())
        except ActorError:
            pass  # it has ended; a restarted one closes when nobody pulls
