"""What is known of a change to groups that may have been made more than once.

A change is made again after a lost answer, and is then refused because of its own effect.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from broker.client.errors import ConnectionLost, ServerRefusal, TidemarkError


class RepeatedChange:
    """One change on several vchannels."""

    def __init__(self) -> None:
        self.done: set[str] = set()
        """Where the server said that it was carried out."""
        self.doubted: set[str] = set()
        """Where it may have been: it was sent, perhaps, and no answer came."""

    @contextmanager
    def noting(self, vchannel: str) -> Iterator[None]:
        """Note what became of the change on this vchannel, which is made in the block."""
        refused = False
        try:
            yield
            self.done.add(vchannel)
        except TidemarkError as error:
            unsent = isinstance(error, ConnectionLost) and error.unsent
            refused = unsent or isinstance(error, ServerRefusal)
            raise
        finally:
            # In case of a cancellation too: no answer was waited for any more.
            if not refused and vchannel not in self.done:
                self.doubted.add(vchannel)
