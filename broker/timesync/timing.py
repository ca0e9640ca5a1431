"""The intervals of time synchronisation."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimesyncTiming:
    """`poll_s`: between two polls of the pchannels; at most their own tick interval."""

    poll_s: float = 0.2
    interval_ms: int = 500
    """The least distance of two ticks of the cluster's soft barrier."""
    pchannel_lease_s: float = 10.0
    """A pchannel whose tick stands still for longer no longer holds up the cluster's tick."""
