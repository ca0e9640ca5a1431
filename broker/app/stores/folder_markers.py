"""Files that say where the log of a data folder is, to whoever does not read the metadata for it.

A folder whose log is in Kafka has `kafka/prefix`. A release that knows no switches refuses to start
there without `--wal`, and to start with it where the folder has segment files. So it never takes
for empty what a switch has moved: the file is written before the first pchannel switches to Kafka,
and removed when the last one has switched back.
"""

from broker.app.process_errors import CannotStart
from broker.core.cluster.wal_alter import SEGMENTED, Alter, AlterStage
from broker.data_folder import DataFolder
from broker.folder_lock import make_folder, replace_durably, sync_folder
from broker.ports.wal import WriterFailed
from broker.process_settings import Settings
from broker.wal.kafka.kafka_url import KafkaPlace, kafka_place


class FolderMarkers:
    """Implements `Markers` for one data folder."""

    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder

    def mark(self, place: str) -> None:
        """See Markers. Segment files speak for themselves."""
        try:
            if place != SEGMENTED and not read_prefix(self._folder):
                _write_prefix(self._folder, kafka_place(place).prefix)
        except (OSError, CannotStart) as error:
            raise WriterFailed(f"cannot mark the data folder: {error}") from error

    def settle(self, place: str) -> None:
        """See Markers."""
        path = self._folder.log_prefix
        try:
            if place == SEGMENTED and path.exists():
                path.unlink()
                sync_folder(self._folder.kafka)
        except OSError as error:
            raise WriterFailed(f"cannot remove {path}: {error}") from error

    def check(self, alter: Alter) -> None:
        """Put right what a crash has left. Raises CannotStart."""
        try:
            if alter.stage in (AlterStage.SWITCHING, AlterStage.DROPPING):
                self.mark(alter.target)
            elif alter.ended:
                self.mark(alter.place)
                self.settle(alter.place)
        except WriterFailed as error:
            raise CannotStart(str(error)) from error


def check_founded(settings: Settings, folder: DataFolder) -> None:
    """Raises CannotStart unless the log of a folder that never switched is where the settings say.

    Binds a new folder to the prefix of its log: metadata and log belong together.
    """
    prefix = read_prefix(folder)
    if not settings.wal:
        if prefix:
            raise CannotStart(
                f"the log of data folder {folder.root} is in Kafka, under the prefix {prefix};"
                f" start with --wal kafka://HOST:PORT/{prefix}, or name another --data-dir"
            )
        return
    place = kafka_place(settings.wal)
    if has_segment_files(folder):
        raise CannotStart(
            f"data folder {folder.root} has its log in segment files, which --wal {place.shown}"
            " would leave behind; start without --wal and switch it with `tidemark wal alter`, or"
            " name another --data-dir"
        )
    _refuse_other_prefix(folder, prefix, place)
    if not prefix:
        _write_prefix(folder, place.prefix)


def read_prefix(folder: DataFolder) -> str:
    """The prefix of the topics, of a folder whose log is in Kafka; else empty. CannotStart."""
    try:
        return folder.log_prefix.read_text().strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise CannotStart(f"cannot read {folder.log_prefix}: {error}") from error


def has_segment_files(folder: DataFolder) -> bool:
    """Whether a pchannel has, or had, its log in the folder."""
    return folder.log.is_dir() and any(it.is_dir() for it in folder.log.iterdir())


def _refuse_other_prefix(folder: DataFolder, prefix: str, place: KafkaPlace) -> None:
    if prefix and prefix != place.prefix:
        raise CannotStart(
            f"the log of data folder {folder.root} is in Kafka under the prefix {prefix}, not"
            f" {place.prefix}; correct --wal, or name another --data-dir"
        )


def _write_prefix(folder: DataFolder, prefix: str) -> None:
    make_folder(folder.kafka)
    replace_durably(folder.log_prefix, prefix + "\n")
