"""Opens segmented logs: claim, recover, seal by a new segment, check the claim."""

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from anyio import to_thread

from broker.model.ids import PChannelName, Term
from broker.ports.files import Files
from broker.ports.wal import Corrupt, Fenced, WalError, WriterFailed
from broker.wal.segmented.claims import Claim, newest_term
from broker.wal.segmented.emptying import remove_log, remove_messages
from broker.wal.segmented.log import SegmentedLog
from broker.wal.segmented.log_opening import LogRecovery, RecoveredLog
from broker.wal.segmented.preallocation import Preallocator
from broker.wal.segmented.reader import Reader
from broker.wal.segmented.scan import OnDamage, refuse
from broker.wal.segmented.segment import HEADER_BYTES, LogSegment, LogView, SegmentName
from broker.wal.segmented.settings import DEFAULTS, SegmentedSettings
from broker.wal.segmented.worker import Worker
from broker.wal.segmented.writer import LogPlace, Writer, start_segment, store_index

_PROBE = "writable.probe"


def _random_salt() -> int:
    return secrets.randbits(32)


@dataclass(frozen=True, slots=True)
class Opened:
    """An open log without its thread."""

    place: LogPlace
    claim: Claim
    writer: Writer
    reader: Reader

    def close(self) -> None:
        """Close its files."""
        self.writer.close()
        self.reader.close()


class SegmentedWal:
    """Implements `ports.wal.Wal` on a folder tree with one folder for each pchannel.

    Every damaged place is reported to `on_damage`, then raised, or skipped with
    `settings.skip_damage`.
    """

    def __init__(
        self,
        files: Files,
        settings: SegmentedSettings = DEFAULTS,
        *,
        on_damage: OnDamage | None = None,
        background: Executor | None = None,
        salt: Callable[[], int] = _random_salt,
    ) -> None:
        self._files, self._settings, self._salt = files, settings, salt
        self._background = background or ThreadPoolExecutor(2, "wal-allocate")
        report = on_damage or _ignore_damage
        self._on_damage: OnDamage = report if settings.skip_damage else partial(_refuse, report)

    @property
    def name(self) -> str:
        # One of the names that Milvus clients know; its message ids are integers, as ours are.
        return "rocksmq"

    async def open(self, channel: PChannelName, term: Term) -> SegmentedLog:
        return await self._opened(channel, partial(self.open_now, channel, term))

    async def open_anew(self, channel: PChannelName, term: Term) -> SegmentedLog:
        """See `ports.switching.log_copies`."""
        return await self._opened(channel, partial(self.open_now, channel, term, anew=True))

    async def _opened(self, channel: PChannelName, opening: Callable[[], Opened]) -> SegmentedLog:
        worker = Worker(f"wal-{channel}")
        opened = await worker.run_to_open(opening, Opened.close)
        return SegmentedLog(opened.place, opened.claim, opened.writer, opened.reader, worker)

    async def remove(self, channel: PChannelName, term: Term) -> bool:
        """See `ports.switching.log_copies`."""
        await to_thread.run_sync(self.remove_now, channel, term)
        return True

    def remove_now(self, channel: PChannelName, term: Term) -> None:
        """`remove`, synchronous."""
        folder = _folder(channel)
        try:
            if not self._files.list(folder):
                return  # also where the disk takes no writes
            claim = Claim.take(self._files, folder, channel, term, again=True)
        except OSError as failure:
            raise _not_removed(channel, failure) from failure
        try:
            remove_log(self._files, folder, claim)
        except OSError as failure:
            # Not asked of the claim: that goes before the folder does.
            with suppress(OSError):
                newest = newest_term(self._files.list(folder))
                if newest > term:
                    raise Fenced(channel, term, newest) from failure
            raise _not_removed(channel, failure) from failure
        finally:
            claim.release()

    def warnings(self) -> Sequence[str]:
        return ()

    async def why_unwritable(self, channel: PChannelName) -> str:
        return await to_thread.run_sync(self._probe)

    def open_now(self, channel: PChannelName, term: Term, *, anew: bool = False) -> Opened:
        """`open`, or `open_anew`, synchronous."""
        place = LogPlace(
            self._files, _folder(channel), self._settings, self._background, self._salt
        )
        try:
            self._files.make_folder(place.folder)
            claim = Claim.take(self._files, place.folder, channel, term)
        except OSError as failure:
            raise WriterFailed(f"{channel}: {failure}") from failure
        try:
            if anew:
                remove_messages(self._files, place.folder, claim)
            return self._recover(place, claim)
        except OSError as failure:
            verdict = claim.verdict(failure)
            claim.release()
            raise verdict from failure
        except BaseException:
            claim.release()
            raise

    def _recover(self, place: LogPlace, claim: Claim) -> Opened:
        spacing = self._settings.index_spacing_bytes
        found = LogRecovery(self._files, place.folder, spacing, self._on_damage).run()
        preallocator = Preallocator(
            self._files, place.folder, f"{claim.term:010d}", self._background
        )
        spare = preallocator.take(self._settings.opening_bytes)
        # Its header seals what was recovered, so every later owner finds the same.
        active, fresh = start_segment(place, spare, claim, _end_of(found), found.link)
        try:
            # If a newer owner came meanwhile, its scan may have missed our new segment.
            claim.check()
            # After the check: a fenced owner must remove nothing.
            self._clean(place, found)
        except BaseException:
            active.file.close()
            raise
        sealed_bytes = sum(segment.size_bytes for segment in found.sealed)
        writer = Writer(
            place,
            claim,
            preallocator,
            active,
            LogView(found.sealed, sealed_bytes, fresh, found.removed_tick),
        )
        reader = Reader(
            claim.channel,
            place,
            lambda: writer.view,
            lambda: writer.active,
            self._on_damage,
            claim.check,
        )
        writer.on_sealed = reader.keep_index
        return Opened(place, claim, writer, reader)

    def _clean(self, place: LogPlace, found: RecoveredLog) -> None:
        """Remove files outside the chain; truncate and index what a crash left unsealed."""
        for name in found.leftovers:
            try:
                self._files.remove(f"{place.folder}/{name}")
            except FileNotFoundError:
                pass  # a fenced owner removed its own file
        for segment in found.sealed:
            if segment.name in found.unindexed:
                file = self._files.open(f"{place.folder}/{segment.name.log_file}")
                try:
                    file.truncate(segment.end)
                finally:
                    file.close()
                store_index(place, found.unindexed[segment.name], segment)

    def _probe(self) -> str:
        # A unique name: many channels may probe at once after the disk was full.
        name = f"{_PROBE}.{self._salt():08x}"
        try:
            self._files.make_folder("")
            file = self._files.open(name, create=True)
        except OSError as failure:
            return failure.strerror or str(failure)
        try:
            self._files.remove(name)  # before the writes: a killed process leaves no file behind
            # As much as an opening needs: where a byte fits, a segment may not.
            file.allocate(self._settings.opening_bytes)
            file.write_durable(0, (_PROBE.encode(),))
        except OSError as failure:
            return failure.strerror or str(failure)
        finally:
            file.close()
        return ""


def _end_of(found: RecoveredLog) -> LogSegment:
    """An empty segment at the end of the recovered log, for `start_segment`."""
    name = SegmentName(found.last_term, found.next_id)
    return LogSegment(name, 0, HEADER_BYTES, found.next_id, found.last_tick, found.last_term)


def _not_removed(channel: str, failure: OSError) -> WalError:
    """No WriterFailed: the log need not be opened again for the next try."""
    return WalError(f"{channel}: cannot remove segment files, as will be tried again: {failure}")


def _folder(channel: str) -> str:
    if "/" in channel or channel in ("", ".", ".."):
        raise ValueError(f"channel name {channel!r} is not usable as a folder name")
    return channel


def _refuse(report: OnDamage, damage: Corrupt) -> None:
    report(damage)
    refuse(damage)


def _ignore_damage(_damage: Corrupt) -> None:
    """The default `on_damage`."""
