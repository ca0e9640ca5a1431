"""Keys and values of the records of the time tick producer."""

from typing import Any

from broker.coordinator.json_records import decode_fields, encode_fields
from broker.model.master.time_ticks import TickOrigin, TickPolicy, TickSettings


def settings_key(origin: TickOrigin) -> str:
    """The key of what is set for the ticks of this origin."""
    return f"time-ticks/{origin.name.lower()}"


def floor_key(origin: TickOrigin) -> str:
    """The key of the newest tick that some channel may have got."""
    return f"time-ticks-floor/{origin.name.lower()}"


def encode_settings(settings: TickSettings) -> bytes:
    """The record of the settings."""
    return encode_fields(
        {
            "peers": settings.peers,
            "channels": settings.channels,
            "policy": settings.policy.name,
            "interval_ms": settings.interval_ms,
        }
    )


def decode_settings(key: str, value: bytes) -> TickSettings:
    """The settings; raises UnreadableRecord if this version cannot read them."""

    def parse(fields: dict[str, Any]) -> TickSettings:
        return TickSettings(
            peers=tuple(int(it) for it in fields["peers"]),
            channels=tuple(str(it) for it in fields["channels"]),
            policy=TickPolicy[fields["policy"]],
            interval_ms=int(fields["interval_ms"]),
        )

    return decode_fields(key, value, parse)
