"""Documents as text: names, wrongly decoded characters, and sizes that may be reduced."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.jax_documents.cells import SHOWN

MARK = "In []:"
"""Begins a cell."""

SPOILED = {
    chr(read): byte
    for read, byte in (
        (0x20AC, 0x80), (0x201A, 0x82), (0x152, 0x8C), (0x201D, 0x94), (0x2DC, 0x98),
        (0x153, 0x9C), (0xAC, 0xAC), (0x384, 0xB4), (0x38C, 0xBC),
    )
}  # fmt: skip
"""Bytes of line-drawing characters, by what they were once read as."""


def restore_drawings(text: str) -> str:
    """Return `text` with the box-drawing characters that were decoded in a Greek encoding."""

    def box(match: re.Match[str]) -> str:
        return bytes([0xE2, 0x94, SPOILED.get(match[1], 0x90)]).decode()

    drawn = re.sub(f"β”([{''.join(SPOILED)}]?)", box, text)
    # The right end of a line between boxes had been decoded as a part of the line.
    return re.sub(r"(?m)^(├.*)─$", r"\1┤", drawn)


@dataclass(frozen=True)
class Choices:
    """Options of a document run: replacements, the number of devices, and their platform."""

    replace: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)

    def apply(self, text: str) -> str:
        for old, new in self.replace.items():
            text = text.replace(old, new)
        return text


OLDER = {"threefry_partitionable": False}
EIGHT = {"num_cpu_devices": 8, "shown_platform": "tpu"}

KNOWN: Mapping[str, Choices] = {
    "Parallelism": Choices({"4096": "64"}, {**EIGHT, **OLDER}),
    "Distributed arrays and automatic parallelization": Choices(
        {"8192": "512", "784": "49"}, {**EIGHT, **OLDER}
    ),
    "Parallelization across devices": Choices({"10_000_000": "100_000"}, OLDER),
}
"""Choices for documents by their titles."""


@dataclass(frozen=True)
class Document:
    path: Path
    title: str
    text: str


def documents_in(folder: Path) -> Sequence[Document]:
    """Return the documents in a folder by name: notebooks, Markdown pages, and text."""
    found = []
    for path in sorted(each for each in folder.iterdir() if each.suffix in READERS):
        text = restore_drawings(READERS[path.suffix](path.read_text(encoding="utf-8")))
        first = next((line for line in text.splitlines() if line.strip(f"{SHOWN} ")), "")
        found.append(Document(path, first.strip(f"{SHOWN}# "), text))
    return found


def _notebook(text: str) -> str:
    """Return the text of a Jupyter notebook."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            parts.append(_output_lines(source))
            continue
        foreign = source.startswith("%%") and not source.startswith(TIMED)
        parts += [MARK, re.sub("(?m)^", "!", source) if foreign else source]
        for output in cell["outputs"]:
            told = output.get("text") or output.get("data", {}).get("text/plain", "")
            parts.append(_output_lines("".join(told)))
    return "\n".join(parts)


TIMED = ("%%time", "%%capture")
"""Magics above code that is Python."""


def _page(text: str) -> str:
    """Return the text of a Markdown page: Python blocks are cells, and everything else is
    output.
    """
    blocks = re.split(r"(?m)^```(\w*)[^\n]*\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    if "python" not in blocks[1::3]:
        return text
    parts = [_output_lines(blocks[0])]
    for language, body, after in zip(blocks[1::3], blocks[2::3], blocks[3::3], strict=True):
        parts += [MARK, body] if language == "python" else [_output_lines(body)]
        parts.append(_output_lines(after))
    return "\n".join(parts)


def _output_lines(text: str) -> str:
    return "\n".join(f"{SHOWN}{line}" for line in text.splitlines())


READERS: Mapping[str, Callable[[str], str]] = {".ipynb": _notebook, ".md": _page, ".txt": str}
"""What makes text of a document, by the ending of its name."""
