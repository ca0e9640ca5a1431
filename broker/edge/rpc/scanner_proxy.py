"""One reader's Scanner, whichever incarnation of it lives: asked, looked for again, let go.

Owns no position: every Pull carries a cursor, so a Scanner that was restarted, or left because
nobody pulled for long, goes on where the reader is.
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


class ScannerProxy:
    """See the module. `opening` is what opened the Scanner, for when another one is needed."""

    __slots__ = ("_directory", "_opening", "_scanner")

    def __init__(
        self, directory: Proxy, opening: OpenScanner, scanner: Ref[ScannerMessage]
    ) -> None:
        self._directory = directory
        self._opening = opening
        self._scanner = scanner

    async def pull(self, cursor: ReadPosition, credit_bytes: int) -> Delivery:
        """The next delivery, from whichever incarnation answers first. Raises Refused."""
        lost = ""
        for _ in range(PULL_TRIES_MAX):
            try:
                answer = await self._scanner.ask(Pull(cursor, credit_bytes), deadline_s=PULL_S)
            except AskTimeout as error:
                lost = str(error)
            except (ActorDied, StaleTerm) as error:
                lost = str(error)
                await self._find_scanner_again(lost)
            else:
                if isinstance(answer, Refusal):
                    raise Refused(answer.code, answer.cause)
                return answer
        raise Refused(StreamingCode.INNER, f"the scanner does not answer: {lost}")

    async def _find_scanner_again(self, lost: str) -> None:
        """Raises Refused(INNER), as Milvus does when the log behind a consumer goes away."""
        await anyio.sleep(RETRY_PAUSE_S)
        found = await self._directory.ask(FindScanner(self._scanner.path))
        if not isinstance(found, Refusal):
            self._scanner = found
        elif found.code is not StreamingCode.INNER:  # which means: not yet
            self._scanner = await self._another_scanner(lost)

    async def _another_scanner(self, lost: str) -> Ref[ScannerMessage]:
        """A Scanner leaves when nobody pulls for long, as when this consumer did not read.

        Where it starts does not matter: every Pull carries the cursor.
        """
        opened = await self._directory.ask(replace(self._opening, policy=FromAll()))
        if isinstance(opened, Refusal):
            raise Refused(StreamingCode.INNER, f"{opened.cause} ({lost})")
        return opened.scanner

    def release(self) -> None:
        """Nobody pulls any more."""
        try:
            self._scanner.tell(CloseScanner())
        except ActorError:
            pass  # it is gone already; a restarted one closes itself when nobody pulls
