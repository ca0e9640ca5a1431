"""The Python blocks of the pages, in the order in which they stand."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "127.0.0.1:19531"
"""What the pages call the broker."""
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = sorted(
    page for room in ("broker", "schemas", "scripts") for page in (ROOT / room).rglob("*.md")
)


def blocks(page: Path) -> list[str]:
    """Those without Spark."""
    return [it for it in _all(page) if "pyspark" not in it]


def spark_blocks(page: Path) -> list[str]:
    """Those that are programs for Spark."""
    return [it for it in _all(page) if "pyspark" in it]


def pages_with_blocks() -> list[Path]:
    return [page for page in (ROOT / "README.md", *PAGES) if blocks(page)]


def pages_with_spark() -> list[Path]:
    return [page for page in (ROOT / "README.md", *PAGES) if spark_blocks(page)]


def _all(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))
