"""Documents as text: names, spoiled characters, and sizes that may be smaller."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SPOILED = {
    chr(read): byte
    for read, byte in (
        (0x20AC, 0x80), (0x201A, 0x82), (0x152, 0x8C), (0x201D, 0x94), (0x2DC, 0x98),
        (0x153, 0x9C), (0xAC, 0xAC), (0x384, 0xB4), (0x38C, 0xBC),
    )
}  # fmt: skip
"""Bytes of line-drawing characters, by what they were once read as."""


def unspoiled(text: str) -> str:
    """`text` with its drawings again as they were before their bytes were read as Greek ones."""

    def box(match: re.Match[str]) -> str:
        return bytes([0xE2, 0x94, SPOILED.get(match[1], 0x90)]).decode()

    drawn = re.sub(f"β”([{''.join(SPOILED)}]?)", box, text)
    # The right end of a line between boxes was read as the line itself.
    return re.sub(r"(?m)^(├.*)─$", r"\1┤", drawn)


@dataclass(frozen=True)
class Choices:
    """How a document is run: what stands in for what, on how many devices, of which kind.

    `settings` are those that JAX had by default when the document was written.
    """

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
    """The documents in a folder: all of its text files, by name."""
    found = []
    for path in sorted([*folder.glob("*.txt"), *folder.glob("*.md")]):
        text = unspoiled(path.read_text(encoding="utf-8"))
        first = next((line for line in text.splitlines() if line.strip()), "")
        title = first.strip("# ").strip()
        found.append(Document(path, title, text))
    return found
