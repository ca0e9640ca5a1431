"""The name under which a vchannel's schedule of delayed messages is kept, beside its groups.

The schedule is kept as a group is: a record makes it, and its floor holds the log, so that no
delayed message is removed before it was released, up to the limit of holds.
"""

from typing import Final

SCHEDULE: Final = "@schedule"
"""No group of a program can have it."""
