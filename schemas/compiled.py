"""Whether the scanners run as machine code or as Python: both behave the same, one is faster."""

from schemas import scan


def compiled() -> bool:
    """True in a wheel that was built with them compiled; see scripts/compile_schemas.py."""
    return not str(scan.__file__).endswith(".py")
