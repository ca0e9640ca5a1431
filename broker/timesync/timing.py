"""The paces of time synchronisation. Owns numbers only."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimesyncTiming:
    """`poll_s`: between two looks at the pchannels; their own tick interval, or less."""

    poll_s: float = 0.2
    interval_ms: int = 500
    """Two ticks of the cluster's soft barrier are at least so far apart."""
    pchannel_lease_s: float = 10.0
    """A pchannel whose tick stands still for longer holds up the cluster's tick no more."""
