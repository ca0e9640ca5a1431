"""What the embedded queue raises. Each message says what was wrong, with which value."""

from pathlib import Path

from broker.model.rocksmq.queue_refusal import QueueFault, QueueRefusal
from broker.ports.queues.ordered_store import OrderedStoreError


class RocksMQError(Exception):
    """A call was not carried out."""


class BadQueueName(RocksMQError, ValueError):
    """The name of a channel or group has what no name may have."""


class BadQueueArgument(RocksMQError, ValueError):
    """A number is out of its range, or a batch too large."""


class ChannelExists(RocksMQError):
    """A channel of this name is there already."""


class UnknownChannel(RocksMQError):
    """There is no such channel, or it was destroyed."""


class ConsumerGroupExists(RocksMQError):
    """A group of this name is there already."""


class UnknownConsumerGroup(RocksMQError):
    """There is no such group, or it was destroyed."""


class SeekOutOfRange(RocksMQError):
    """The position lies beyond the end, or was removed by retention."""


class RocksMQClosed(RocksMQError):
    """The queue was closed before the call, or while it waited."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"the RocksMQ in {folder} is closed; open it again")


class RocksMQFull(RocksMQError):
    """The disk is full. Nothing of the call is stored; reads go on; free space and call again."""


class RocksMQFailed(RocksMQError):
    """The store failed. Nothing of the call is visible; after a crash it may be, as a whole."""


class FolderRefused(RocksMQError):
    """The folder cannot be opened: damaged, unreadable, or no folder of a RocksMQ."""


class FolderInUse(FolderRefused):
    """Another process has the folder open, or this one has it open already."""

    def __init__(self, folder: Path, pid: int | None) -> None:
        super().__init__(
            f"RocksMQ folder {folder} is in use by process {pid or 'unknown'}; close it there,"
            " or open another folder"
        )
        self.folder, self.pid = folder, pid


class FolderVersionRefused(FolderRefused):
    """The folder was written by a release that stores things differently; it is not touched."""

    def __init__(self, folder: Path, found: object, known: int) -> None:
        super().__init__(
            f"RocksMQ folder {folder} has format version {found!r}; this release reads version"
            f" {known}: use the release that wrote it, or another folder"
        )
        self.folder, self.found, self.known = folder, found, known


class RocksdictMissing(RocksMQError, ImportError):
    """The library that stores messages is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "RocksMQ stores messages with the package rocksdict, which is not installed here; add"
            " it with: pip install '.[rocksmq]' in Tidemark's folder"
        )


_KINDS: dict[QueueFault, type[RocksMQError]] = {
    QueueFault.BAD_NAME: BadQueueName,
    QueueFault.BAD_ARGUMENT: BadQueueArgument,
    QueueFault.CHANNEL_EXISTS: ChannelExists,
    QueueFault.NO_CHANNEL: UnknownChannel,
    QueueFault.GROUP_EXISTS: ConsumerGroupExists,
    QueueFault.NO_GROUP: UnknownConsumerGroup,
    QueueFault.OUT_OF_RANGE: SeekOutOfRange,
}


def refused(refusal: QueueRefusal) -> RocksMQError:
    """A refusal as an exception."""
    return _KINDS[refusal.fault](refusal.cause)


def check(refusal: QueueRefusal | None) -> None:
    """Raise a refusal, if it is one."""
    if refusal is not None:
        raise refused(refusal)


def store_error(error: OrderedStoreError) -> RocksMQError:
    """What a caller is told when the store has failed."""
    if error.full:
        return RocksMQFull(f"the disk is full: {error}; free some space and try again")
    return RocksMQFailed(f"the store failed: {error}; close the queue and open it again")
