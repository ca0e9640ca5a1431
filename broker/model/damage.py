"""A place in a stored log that cannot be read, as it is shown to people."""

from dataclasses import dataclass

from broker.model.ids import PChannelName


@dataclass(frozen=True, slots=True)
class Damage:
    """`file` is relative to the log's folder; `times`: how often it was met since the start.

    `skipped`: readers were led around it, and what it held is lost to them; else they were refused.
    """

    pchannel: PChannelName
    file: str
    offset: int
    reason: str
    skipped: bool
    times: int
