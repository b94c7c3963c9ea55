"""`docs/map.md` and `docs/glossary.md` name files that exist, and terms of the glossary are used.

`test_dtype_places.py` tests the map's section about dtypes.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("shardir", "passes", "frontend", "backends")
NAMED = set(re.findall(r"`((?:\w+/)+[\w.]*)`", (ROOT / "docs/map.md").read_text(encoding="utf-8")))


def test_every_named_file_exists() -> None:
    assert [name for name in sorted(NAMED) if not (ROOT / name).exists()] == []


def test_every_file_named_in_the_glossary_exists() -> None:
    text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)+[\w.]*)`", text))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_term_of_the_glossary_is_defined_once_and_used() -> None:
    glossary = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \|", glossary, re.MULTILINE)
    terms = [re.sub(r"`| \(.*\)", "", row) for row in rows if row not in ("term", "---")]
    assert len(terms) == len(set(terms)) > 0
    files = [path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")]
    files += [path for path in (ROOT / "docs").glob("*.md") if path.name != "glossary.md"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files).lower()
    assert [term for term in terms if not re.search(term.replace(" ", r"\s+"), text)] == []
