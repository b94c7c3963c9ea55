"""Paths of the C++ headers."""

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def include_folder() -> Path:
    """Return the folder of the model's headers, for the compiler option `-I`."""
    return _HERE / "include"


def runner_folder() -> Path:
    """Return the folder of the headers that belong beside every emitted program."""
    return _HERE / "runner"


def runner_files() -> dict[str, str]:
    """Return the texts of the headers that belong beside every emitted program, by name."""
    return {file.name: file.read_text("utf-8") for file in sorted(runner_folder().glob("*.hpp"))}


def all_headers() -> list[Path]:
    """Return all headers in a fixed order."""
    folders = (include_folder(), runner_folder())
    return [file for folder in folders for file in sorted(folder.rglob("*.hpp"))]
