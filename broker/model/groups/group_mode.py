"""How a group hands its messages to its members."""

from enum import StrEnum


class GroupMode(StrEnum):
    """SHARED: each message to any member. Else in order, to the one member that owns its part.

    BY_VCHANNEL: the part is all of a vchannel. BY_KEY: the messages of one key.
    """

    SHARED = "shared"
    BY_VCHANNEL = "vchannel"
    BY_KEY = "key"
