"""What an append to a full disk was told, apart from what any slow machine tells."""

from broker.client.errors import AppendsFailed, DeadlineExceeded, OutcomeUnknown, TidemarkError


def failures(error: TidemarkError) -> list[TidemarkError]:
    """Those of all messages of a call."""
    found = error.results if isinstance(error, AppendsFailed) else [error]
    return [it for it in found if isinstance(it, TidemarkError)]


def is_only_late(error: TidemarkError) -> bool:
    """Whether it says no more than that time passed: the disk may be slow and not full."""
    return all(isinstance(it, DeadlineExceeded | OutcomeUnknown) for it in failures(error))
