"""When grpc-go opens its flow-control windows, and how it sizes them by the bandwidth it sees.

After `flowcontrol.go` and `bdp_estimator.go` of grpc-go 1.71. Pure: the time is an argument.
"""

from dataclasses import dataclass

WINDOW_BYTES = 65_535
"""Of a stream and of the connection, before anything is known of the bandwidth."""
BDP_BYTES_MAX = 16 << 20
BDP_PING = bytes((2, 4, 16, 16, 9, 14, 7, 7))
_SAMPLES_AT_FIRST = 10
_ALPHA, _BETA, _GAMMA = 0.9, 0.66, 2


@dataclass(slots=True)
class ConnectionWindow:
    """The window of the connection: reopened after a quarter of it, whoever has read what."""

    limit: int = WINDOW_BYTES
    _unacked: int = 0

    def on_data(self, size: int) -> int:
        """Count what has arrived; the increment to send now, or 0."""
        self._unacked += size
        return 0 if self._unacked < self.limit // 4 else self.reset()

    def reset(self) -> int:
        """The increment for everything that has arrived since the last one."""
        unacked, self._unacked = self._unacked, 0
        return unacked

    def grow(self, limit: int) -> int:
        """Set a new limit; the increment to send."""
        gained, self.limit = limit - self.limit, limit
        return gained


@dataclass(slots=True)
class StreamWindow:
    """The window of a stream: reopened after a program has read a quarter of it."""

    limit: int = WINDOW_BYTES
    _pending: int = 0
    _to_announce: int = 0
    _extra: int = 0

    def on_data(self, size: int) -> None:
        """Count what has arrived."""
        self._pending += size

    def before_read(self, wanted: int) -> int:
        """The increment without which so many bytes cannot all arrive, or 0."""
        room = self.limit - (self._pending + self._to_announce)
        if wanted - self._pending <= room:
            return 0
        self._extra = wanted
        return wanted

    def after_read(self, size: int) -> int:
        """Count what a program has read; the increment to send now, or 0."""
        if not self._pending:
            return 0
        self._pending -= size
        counted = max(0, size - self._extra)
        self._extra = max(0, self._extra - size)
        self._to_announce += counted
        if self._to_announce < self.limit // 4:
            return 0
        announced, self._to_announce = self._to_announce, 0
        return announced


@dataclass(slots=True)
class Bandwidth:
    """Estimates bandwidth times delay, from what arrives between a ping and its answer."""

    _bdp: int = WINDOW_BYTES
    _sample: int = 0
    _bandwidth_max: float = 0.0
    _samples: int = 0
    _rtt_s: float = 0.0
    _waiting: bool = False
    _sent_s: float = 0.0

    def add(self, size: int) -> bool:
        """Count what has arrived; whether to send a ping now."""
        if self._bdp == BDP_BYTES_MAX:
            return False
        if self._waiting:
            self._sample += size
            return False
        self._waiting, self._sample = True, size
        self._samples += 1
        return True

    def sent(self, now_s: float) -> None:
        """The ping is written."""
        self._sent_s = now_s

    def answered(self, now_s: float) -> int:
        """The windows to have from now on, or 0 for those there are."""
        took_s = now_s - self._sent_s
        share = 1 / self._samples if self._samples < _SAMPLES_AT_FIRST else _ALPHA
        self._rtt_s += (took_s - self._rtt_s) * share
        self._waiting = False
        bandwidth = self._sample / (self._rtt_s * 1.5)
        self._bandwidth_max = max(self._bandwidth_max, bandwidth)
        enough = self._sample >= _BETA * self._bdp and bandwidth == self._bandwidth_max
        if not enough or self._bdp == BDP_BYTES_MAX:
            return 0
        self._bdp = min(_GAMMA * self._sample, BDP_BYTES_MAX)
        return self._bdp
