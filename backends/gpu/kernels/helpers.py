"""Texts of the helper functions of kernels, read from `functions.py` without importing it."""

import ast
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

LIBDEVICE = "from triton.language.extra import libdevice"


@lru_cache(maxsize=1)
def helper_functions() -> Mapping[str, str]:
    """Return the text of each function by name, callees before callers."""
    text = Path(__file__).with_name("functions.py").read_text(encoding="utf-8")
    lines = text.splitlines()
    return {
        node.name: "\n".join(lines[node.decorator_list[0].lineno - 1 : node.end_lineno])
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
    }


def find_helpers(text: str) -> tuple[str, ...]:
    """Return the functions that a kernel's text calls, transitively; callees first."""
    known = helper_functions()
    found: dict[str, None] = {}
    left = [text]
    while left:
        for word in _words(left.pop()):
            if word in known and word not in found:
                found[word] = None
                left.append(known[word].split("\n", 2)[2])
    return tuple(name for name in known if name in found)


def _words(text: str) -> list[str]:
    """Return the names that code uses, except in docstrings and as attributes."""
    code = re.sub(r'""".*?"""', "", text, flags=re.DOTALL)
    return re.findall(r"(?<![.\w])[a-z]\w*", code)
