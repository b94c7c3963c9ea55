"""`docs/map.md` names files that exist; `test_dtype_places.py` tests its section about dtypes."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = set(re.findall(r"`((?:\w+/)+[\w.]*)`", (ROOT / "docs/map.md").read_text(encoding="utf-8")))


def test_every_named_file_exists() -> None:
    assert [name for name in sorted(NAMED) if not (ROOT / name).exists()] == []
