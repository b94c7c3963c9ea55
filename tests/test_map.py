"""`docs/map.md` and `docs/glossary.md` name files that exist.

`test_dtype_places.py` tests the map's section about dtypes.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = set(re.findall(r"`((?:\w+/)+[\w.]*)`", (ROOT / "docs/map.md").read_text(encoding="utf-8")))


def test_every_named_file_exists() -> None:
    assert [name for name in sorted(NAMED) if not (ROOT / name).exists()] == []


def test_every_file_named_in_the_glossary_exists() -> None:
    text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)+[\w.]*)`", text))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
