"""Who owns a log: a claim is an empty file named by a term, created durably before anything else.

A new owner creates its claim, removes every lower one, and only then looks at the log. An owner
asks its open claim file whether it still has a name, after each sync and before it acknowledges.
If it has, the new owner had not yet begun to look, so it will find what was acknowledged.

Why one file per term: creating is atomic, so two owners can never both believe in one term, and
a slow owner cannot put an older term back. Why the open file and not its name: the name could be
taken again, the file that was removed never comes back.
"""

from collections.abc import Sequence

from broker.model.ids import Term
from broker.ports.files import File, Files
from broker.ports.wal import Fenced, WalError, WriterFailed
from broker.wal.segmented.segment import SegmentName

_SUFFIX = ".term"


class Claim:
    """Proof of owning `channel` at `term`, for as long as `check` is silent."""

    def __init__(self, files: Files, folder: str, channel: str, term: Term, file: File) -> None:
        self.channel, self.term = channel, term
        self._files, self._folder, self._file = files, folder, file

    @classmethod
    def take(cls, files: Files, folder: str, channel: str, term: Term) -> "Claim":
        """Fence every lower term, durably; raises Fenced when `term` is not the highest."""
        _refuse_older(channel, term, newest_term(files.list(folder)))
        path = f"{folder}/{term:010d}{_SUFFIX}"
        try:
            file = files.open(path, create=True)
        except FileExistsError:
            raise Fenced(channel, term, term) from None
        claim = cls(files, folder, channel, term, file)
        try:
            files.sync_folder(folder)
            claim._remove_older()
        except BaseException:
            file.close()
            raise
        return claim

    def check(self) -> None:
        """Raises Fenced when a newer owner has come; one cheap system call."""
        if not self._file.linked():
            newest = newest_term(self._files.list(self._folder))
            raise Fenced(self.channel, self.term, max(newest, self.term + 1))

    def verdict(self, failure: Exception) -> WalError:
        """What a failure means: a new owner takes files away, so ask first whether there is one."""
        try:
            self.check()
        except Fenced as fenced:
            return fenced
        except OSError:
            pass  # the first failure says more
        return WriterFailed(f"{self.channel}: {failure}")

    def release(self) -> None:
        """Let go of the file; the claim itself stays, so that its term is never used again."""
        self._file.close()

    def _remove_older(self) -> None:
        names = self._files.list(self._folder)
        newest = newest_term(names)
        if newest > self.term:
            raise Fenced(self.channel, self.term, newest)
        for name in names:
            if 0 < _claimed_term(name) < self.term:
                _remove(self._files, f"{self._folder}/{name}")


def newest_term(names: Sequence[str]) -> int:
    """The highest term that any file of a log folder speaks of; 0 when there is none."""
    segments = (SegmentName.of(name) for name in names)
    written = max((segment.term for segment in segments if segment), default=0)
    return max(written, max(map(_claimed_term, names), default=0))


def _claimed_term(name: str) -> int:
    digits = name.removesuffix(_SUFFIX)
    return int(digits) if name.endswith(_SUFFIX) and digits.isdecimal() else 0


def _refuse_older(channel: str, term: int, newest: int) -> None:
    if newest >= term:
        raise Fenced(channel, term, newest)


def _remove(files: Files, path: str) -> None:
    try:
        files.remove(path)
    except FileNotFoundError:
        pass  # another owner was faster; the claim is gone, which is all that counts
