"""Fills the generated tables of the pages: settings, errors, limits, metrics, commands, states.

    python scripts/gen_pages.py            write them
    python scripts/gen_pages.py --check    exit with 1 when a page is stale, and name it

A page holds `<!-- generated: NAME -->` and `<!-- /generated -->` on lines of their own; what stands
between them is replaced by the table NAME of `scripts/pages`. An unknown NAME is an error.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from pages import TABLES

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"<!-- generated: ([\w-]+) -->\n(?:.*?\n)??<!-- /generated -->", re.DOTALL)


def main() -> int:
    """Write or check every page; 0 when all are fresh."""
    parser = argparse.ArgumentParser(description="Fill the generated tables of the pages.")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when one is stale")
    check = parser.parse_args().check
    made: dict[str, str] = {}
    stale = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        fresh = filled(text, made)
        if fresh != text:
            stale.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(fresh, encoding="utf-8")
    return report(stale, check=check)


def pages() -> list[Path]:
    """Every Markdown page that git tracks, or would."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", "*.md"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listing.splitlines() if (ROOT / name).exists()]


def filled(text: str, made: dict[str, str]) -> str:
    """The page with fresh tables; `made` keeps each table for the next page that wants it."""

    def table(found: re.Match[str]) -> str:
        name = found[1]
        if name not in TABLES:
            raise SystemExit(f"no generated table {name!r}; there are {', '.join(sorted(TABLES))}")
        if name not in made:
            made[name] = TABLES[name]()
        return f"<!-- generated: {name} -->\n{made[name]}\n<!-- /generated -->"

    return BLOCK.sub(table, text)


def report(stale: list[str], *, check: bool) -> int:
    """Say what was stale; the exit status."""
    if not stale:
        print("the generated tables of the pages are up to date")
        return 0
    if not check:
        print(f"written: {', '.join(stale)}")
        return 0
    print(
        f"stale tables in {', '.join(stale)}: run `python scripts/gen_pages.py` and commit",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
