"""`docs/map.md` and `docs/glossary.md` name files that exist.

The map also names every file that treats floats of 16 bits specially.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = set(re.findall(r"`((?:\w+/)+[\w.]*)`", (ROOT / "docs/map.md").read_text(encoding="utf-8")))
PACKAGES = ("shardir", "passes", "frontend", "backends")


def test_every_named_file_exists() -> None:
    assert [name for name in sorted(NAMED) if not (ROOT / name).exists()] == []


def test_every_file_named_in_the_glossary_exists() -> None:
    text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)+[\w.]*)`", text))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_page_names_every_file_that_a_new_dtype_concerns() -> None:
    found = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if '"bf16"' in path.read_text(encoding="utf-8")
    }
    concerned = {
        name for name in found if not re.match(r"shardir/(passes|frontend|backends)/", name)
    }
    assert sorted(concerned - NAMED) == []
