"""What the logs that are served here hold of each vchannel, by what was counted and was told."""

from collections.abc import Mapping

from broker.core.naming import pchannel_of
from broker.core.space.log_sizes import LogSizes
from broker.model.ids import PChannelName


def figures_here(told: Mapping[str, int], logs: Mapping[PChannelName, LogSizes]) -> dict[str, int]:
    """By vchannel; of a log that is still read, at least what was told before of it.

    Goes once through what was told, however many logs there are.
    """
    before: dict[str, dict[str, int]] = {name: {} for name in logs}
    for vchannel, size in told.items():
        if (its := before.get(pchannel_of(vchannel))) is not None:
            its[vchannel] = size
    figures: dict[str, int] = {}
    for name, sizes in logs.items():
        its = before[name]
        known = {it: sizes.bytes_of(it) for it in sizes.vchannels()}
        if sizes.complete:
            figures |= dict.fromkeys(its, 0) | known
        else:
            figures |= its | {it: max(size, its.get(it, 0)) for it, size in known.items()}
    return figures
