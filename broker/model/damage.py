"""A damaged place in a stored log, as shown to people."""

from dataclasses import dataclass

from broker.model.ids import PChannelName


@dataclass(frozen=True, slots=True)
class Damage:
    """`file` is relative to the log's folder; `times`: how often it was read since the start.

    `skipped`: readers skip the damage and lose what it held; otherwise their reads are refused.
    """

    pchannel: PChannelName
    file: str
    offset: int
    reason: str
    skipped: bool
    times: int
