"""Which Tidemark this is."""

from importlib.metadata import PackageNotFoundError, version

from schemas.compiled import compiled


def version_text() -> str:
    """The version, and how the scanners of the wire formats run: "0.1.0 (compiled)"."""
    try:
        number = version("tidemark")
    except PackageNotFoundError:
        number = "0+checkout"
    return f"{number} ({'compiled' if compiled() else 'pure Python'})"
