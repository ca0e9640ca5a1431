"""The pages: each room has one, the front door is one screen, and words are the field's."""

import re

from tests.architecture.tree import ROOT, tracked

README_LINES_MAX = 150
GLOSSARY_ROWS_MAX = 40
ROOMS = (
    "actors", "broker", "broker/cli", "broker/client", "broker/coordinator", "broker/core",
    "broker/edge", "broker/node", "broker/rocksmq", "broker/spark", "broker/timesync", "broker/wal",
    "schemas", "scripts", "tests", "tests/chaos",
)  # fmt: skip
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
OUTSIDE = re.compile(
    r"\b(?:the specification|wire \d+\.\d+|facts, (?:wire|sem|master)|semantics,? \d+|seed 00\d)",
    re.I,
)
"""What would send a reader to a document that is not in the tree."""
RIDDLES = re.compile(
    r"\b(?:turnstile|tenure|who(?:ever)? asked|what comes is|as ever,|mends?\b|is told by"
    r"|gives? (?:it|them|its \w+) away|gives? up (?:a|the) (?:transaction|stage))",
    re.I,
)
"""Words that the glossary has better ones for."""
OWN = {"tests/architecture/test_pages.py"}


def texts() -> dict[str, str]:
    """Each Python file and page of ours."""
    names = [n for n in tracked() if n.endswith((".py", ".md")) and n not in OWN]
    ours = [n for n in names if not n.startswith("schemas/generated/")]
    return {name: (ROOT / name).read_text(encoding="utf-8") for name in ours}


def test_each_room_has_a_page() -> None:
    missing = [room for room in ROOMS if not (ROOT / room / "README.md").exists()]
    assert not missing


def test_the_front_door_is_one_screen() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES_MAX


def test_the_glossary_can_be_read_in_one_go() -> None:
    page = (ROOT / "broker" / "README.md").read_text()
    glossary = page.partition("## Glossary")[2].partition("\n## ")[0]
    rows = [line for line in glossary.splitlines() if line.startswith("| ")][2:]
    assert 20 <= len(rows) <= GLOSSARY_ROWS_MAX


def test_every_link_of_a_page_leads_somewhere() -> None:
    lost = []
    for name in (n for n in tracked() if n.endswith(".md")):
        page = ROOT / name
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            if not link.startswith(("http://", "https://", "mailto:")):
                target = (page.parent / link).resolve()
                if not target.exists():
                    lost.append(f"{name}: {link}")
    assert not lost, lost


def test_nothing_refers_to_a_document_outside_of_the_tree() -> None:
    found = [f"{name}: {it[0]}" for name, text in texts().items() for it in OUTSIDE.finditer(text)]
    assert not found, found


def test_no_text_speaks_in_riddles() -> None:
    found = [f"{name}: {it[0]}" for name, text in texts().items() for it in RIDDLES.finditer(text)]
    assert not found, found


def test_a_path_in_a_page_exists() -> None:
    path = re.compile(r"`((?:actors|broker|schemas|scripts|tests)/[\w/]+[a-z]\.py)`")
    lost = [
        f"{name}: {found}"
        for name in (n for n in tracked() if n.endswith(".md"))
        for found in path.findall((ROOT / name).read_text(encoding="utf-8"))
        if not (ROOT / found).exists()
    ]
    assert not lost, lost
