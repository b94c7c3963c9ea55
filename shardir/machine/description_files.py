"""The files of machine descriptions: those of this package, that of this machine, and others.

The key `base` of a file names another description, whose numbers the file changes.
"""

import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from shardir.errors import MachineError, os_error_reason
from shardir.machine.description import MachineDescription
from shardir.machine.description_parser import DescriptionParser

DESCRIPTIONS = Path(__file__).with_name("descriptions")
"""The folder of the descriptions that this package includes."""

LOCAL = "local"
"""The name of the machine that runs this process. `shardir calibrate --local` measures it."""

MAX_BASES = 8
"""The largest number of files that change one another with `base`."""


def list_descriptions() -> tuple[str, ...]:
    """Return the names of the descriptions that this package includes."""
    return tuple(sorted(path.stem for path in DESCRIPTIONS.glob("*.toml")))


def local_description_path() -> Path:
    """Return the file that describes this machine, in the folder `SHARDIR_CACHE_DIR` or the user's
    cache folder.

    Raises `MachineError` if the user has no home folder.
    """
    folder = os.environ.get("SHARDIR_CACHE_DIR")
    if not folder:
        try:
            base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        except RuntimeError:
            raise MachineError(
                f"the folder with the description of the machine {LOCAL!r} is unknown, because the "
                "user has no home folder; set SHARDIR_CACHE_DIR to a folder"
            ) from None
        folder = str(Path(base) / "shardir")
    return Path(folder).absolute() / f"{LOCAL}.toml"


def read_description(name_or_path: str | Path) -> MachineDescription:
    """Read the description with a name, or the one in a TOML file."""
    path = _find_description(name_or_path)
    return DescriptionParser(path).description(_read_content(path))


def _find_description(name_or_path: str | Path) -> Path:
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith(".toml") or "/" in text:
        return Path(text)
    if text in list_descriptions():
        return DESCRIPTIONS / f"{text}.toml"
    if text == LOCAL:
        path = local_description_path()
        if not os.path.exists(path):
            raise MachineError(
                "this machine has not been measured; run: shardir calibrate --local (it writes "
                f"{path})"
            )
        return path
    names = (*list_descriptions(), LOCAL)
    close = get_close_matches(text, names, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise MachineError(
        f"there is no machine {text!r}; {hint}machines are {', '.join(names)}, or a path that ends "
        "in .toml"
    )


def _read_content(path: Path, depth: int = 0) -> dict[str, object]:
    """Return the content of a file, merged into the description that its key `base` names."""
    content = _read_toml(path)
    links = content.get("links")
    for link in links.values() if isinstance(links, dict) else ():
        entries = link.get("collectives", ()) if isinstance(link, dict) else ()
        for entry in entries if isinstance(entries, list) else ():
            # Table files are beside the description that names them, not beside one based on it.
            if isinstance(entry, dict) and isinstance(entry.get("file"), str):
                entry["file"] = str(path.parent / entry["file"])
    base = content.pop("base", None)
    if base is None:
        return content
    names = list_descriptions()
    if not isinstance(base, str) or not (base in names or base.endswith(".toml")):
        raise MachineError(
            f"{path}: base is {base!r}; it must be one of {', '.join(names)}, or a file that ends "
            "in .toml"
        )
    place = DESCRIPTIONS / f"{base}.toml" if base in names else path.parent / base
    if place == path or depth > MAX_BASES:
        raise MachineError(f"{path}: base is {base!r}; more than {MAX_BASES} files change others")
    return _merge(_read_content(place, depth + 1), content)


def _read_toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise MachineError(
            f"cannot read the machine description {str(path)!r}: {os_error_reason(error)}"
        ) from None
    except ValueError as error:
        raise MachineError(f"{path} is not valid TOML: {error}") from None


def _merge(base: Mapping[str, object], changes: Mapping[str, Any]) -> dict[str, object]:
    """Return `base` with the tables of `changes` merged into its tables; other values replace."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        is_table = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = _merge(cast(dict[str, Any], old), value) if is_table else value
    return merged
