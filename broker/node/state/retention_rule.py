"""How much of each log this node keeps; an operator may change it while the node runs."""

from broker.ports.wal import Retention


class RetentionRule:
    """`now`: what holds for the next check of every pchannel."""

    def __init__(self, retention: Retention) -> None:
        self.now = retention

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is ever removed."""
        return not (self.now.bytes_max or self.now.age_ms_max)
