"""Numbers of things, in words."""


def counted(number: int, thing: str) -> str:
    """`1 message`, `2,500 messages`; for things whose plural ends in s."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
