"""The settings that a peer announces: those that h2 knows, within what this process can afford."""

from typing import Final

from h2.settings import SettingCodes, Settings

ENCODER_TABLE_BYTES_MAX: Final = 4096
"""Of the table that remembers the headers of our answers; a peer may allow us 4 GiB, which we would
fill with the causes of refusals. 4,096 is what HTTP/2 begins with."""
_KNOWN: Final = frozenset(SettingCodes)


class PeerSettings(Settings):
    """As h2's, which keeps whatever number a peer makes up, 65,536 of them."""

    def __setitem__(self, key: SettingCodes | int, value: int) -> None:
        """Unknown settings must be ignored (RFC 9113, 6.5.2)."""
        if key not in _KNOWN:
            return
        if key == SettingCodes.HEADER_TABLE_SIZE:
            value = min(value, ENCODER_TABLE_BYTES_MAX)
        super().__setitem__(key, value)
