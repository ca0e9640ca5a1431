"""How many cases a property gets that needs more of them than Hypothesis makes by itself."""

from hypothesis import settings

SHARE = 4
LEAST = 100


def cases(many: int) -> int:
    """`many` with pytest as it is; more with the profile `long`, and a quarter in the gate.

    The gate's cases are the same in each run for the same code, so that more of them would only
    cost time: new ones are looked for by the other two.
    """
    usual = settings.default.max_examples  # type: ignore[union-attr] # a profile is loaded
    if settings.default.derandomize:  # type: ignore[union-attr]
        return min(usual, many) if usual < LEAST else min(many, max(many // SHARE, LEAST))
    return max(many, usual)
