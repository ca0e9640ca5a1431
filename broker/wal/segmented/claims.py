"""Fencing: a claim is an empty file named by its term; the highest claim owns the log.

A new owner creates its claim, removes every lower one, and only then reads the log. An owner checks
after each sync and before the acknowledgement that its open claim file still has a name. If it has,
a newer owner had not yet started to read, so it will find what is acknowledged now.

Why one file per term: creating a file is atomic, so no term has two owners, and a slow owner cannot
bring an older term back. Why the open file and not the name: a name can be created again, a removed
file never gets its name back.
"""

from collections.abc import Sequence

from broker.model.ids import Term
from broker.ports.files import File, Files
from broker.ports.wal import Fenced, WalError, WriterFailed
from broker.wal.segmented.segment import SegmentName

_SUFFIX = ".term"


class Claim:
    """Ownership of `channel` at `term`, until `check` raises."""

    def __init__(self, files: Files, folder: str, channel: str, term: Term, file: File) -> None:
        self.channel, self.term = channel, term
        self._files, self._folder, self._file = files, folder, file

    @classmethod
    def take(
        cls, files: Files, folder: str, channel: str, term: Term, *, again: bool = False
    ) -> "Claim":
        """Fence all lower terms durably; raises Fenced unless `term` is the highest.

        `again`: whoever calls owns `term`, and may have had the log open at it.
        """
        _refuse_older(channel, term, newest_term(files.list(folder)), again=again)
        path = f"{folder}/{term:010d}{_SUFFIX}"
        try:
            file = files.open(path, create=True)
        except FileExistsError:
            if not again:
                raise Fenced(channel, term, term) from None
            file = files.open(path)
        claim = cls(files, folder, channel, term, file)
        try:
            files.sync_folder(folder)  # durable before any older claim disappears
            claim._remove_older()
        except BaseException:
            file.close()
            raise
        return claim

    @property
    def file_name(self) -> str:
        return f"{self.term:010d}{_SUFFIX}"

    def check(self) -> None:
        """Raise Fenced when a newer owner has removed this claim; one fstat, 0.8 µs."""
        if not self._file.linked():
            newest = newest_term(self._files.list(self._folder))
            raise Fenced(self.channel, self.term, max(newest, self.term + 1))

    def verdict(self, failure: Exception) -> WalError:
        """The error for a failed operation: Fenced if a newer owner exists, else WriterFailed.

        A newer owner removes files, so the failure may be its doing.
        """
        try:
            self.check()
        except Fenced as fenced:
            return fenced
        except OSError:
            pass  # report the first failure, not this one
        return WriterFailed(f"{self.channel}: {failure}")

    def release(self) -> None:
        """Close the file. The claim stays on disk, so that its term is never used again."""
        self._file.close()

    def _remove_older(self) -> None:
        names = self._files.list(self._folder)
        # Listed again: a newer owner may have claimed the log between our first look and our claim.
        newest = newest_term(names)
        if newest > self.term:
            raise Fenced(self.channel, self.term, newest)
        # Not synced: a power cut may bring these names back, but ours is durable and higher.
        for name in names:
            if 0 < _claimed_term(name) < self.term:
                _remove(self._files, f"{self._folder}/{name}")


def newest_term(names: Sequence[str]) -> int:
    """The highest term in the file names of a log folder, or 0."""
    segments = (SegmentName.of(name) for name in names)
    written = max((segment.term for segment in segments if segment), default=0)
    return max(written, max(map(_claimed_term, names), default=0))


def _claimed_term(name: str) -> int:
    digits = name.removesuffix(_SUFFIX)
    return int(digits) if name.endswith(_SUFFIX) and digits.isdecimal() else 0


def _refuse_older(channel: str, term: int, newest: int, *, again: bool) -> None:
    if newest > term or (newest == term and not again):
        raise Fenced(channel, term, newest)


def _remove(files: Files, path: str) -> None:
    try:
        files.remove(path)
    except FileNotFoundError:
        pass  # another owner removed it first
