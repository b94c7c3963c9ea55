"""Where the headers lie."""

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def include_folder() -> Path:
    """The folder with the model's headers, to be given to a compiler with `-I`."""
    return _HERE / "include"


def runner_folder() -> Path:
    """The folder with the headers that belong beside every emitted program."""
    return _HERE / "runner"


def runner_files() -> dict[str, str]:
    """The headers that belong beside every emitted program, by name."""
    return {file.name: file.read_text("utf-8") for file in sorted(runner_folder().glob("*.hpp"))}


def all_headers() -> list[Path]:
    """Every header, in one order."""
    folders = (include_folder(), runner_folder())
    return [file for folder in folders for file in sorted(folder.rglob("*.hpp"))]
