"""How a target chooses by its input: the first byte says which reader gets the rest."""

from collections.abc import Callable, Sequence

Reader = Callable[[bytes], object]


def read_by_first_byte(data: bytes, readers: Sequence[Reader], allowed: tuple[type, ...]) -> None:
    """Give the input without its first byte to the reader that this names.

    An error of `allowed` is an answer; every other one is a defect and goes up.
    """
    if not data:
        return
    try:
        readers[data[0] % len(readers)](data[1:])
    except Exception as error:
        if not isinstance(error, allowed):
            raise


def numbered(seeds: Sequence[bytes], count: int) -> tuple[bytes, ...]:
    """Each seed for each of so many readers: what one reads another may stumble over."""
    return tuple([bytes((number,)) + seed for number in range(count) for seed in seeds])
