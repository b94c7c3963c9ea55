"""The list of packages in pyproject.toml equals the packages on disk."""

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SIBLINGS = ("passes", "frontend", "backends")
CONFIG: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"][
    "setuptools"
]


def folders() -> dict[str, Path]:
    """Return every package by its import name."""
    found = {}
    for top in ("shardir", *SIBLINGS):
        for init in (ROOT / top).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT).parts
            if parts[0] == "shardir" and parts[1:2] and parts[1] in SIBLINGS:
                continue
            found[".".join(parts if top == "shardir" else ("shardir", *parts))] = init.parent
    return found


def test_every_package_is_in_the_distribution() -> None:
    assert set(CONFIG["packages"]) == set(folders())


def test_the_list_of_packages_is_sorted() -> None:
    assert CONFIG["packages"] == sorted(CONFIG["packages"])


def data_files(folder: Path) -> set[Path]:
    """Return the files of a package that are not modules and not built into
    one, in folders that are not packages."""
    found = set()
    for path in folder.iterdir():
        if path.is_symlink() or path.name == "__pycache__" or (path / "__init__.py").exists():
            continue
        if path.is_dir():
            found |= data_files(path)
        elif path.is_file() and path.suffix not in {".py", ".pyc", ".c", ".so"}:
            found.add(path)
    return found


def test_every_data_file_is_in_the_distribution() -> None:
    packages = folders()
    found = {name: data_files(folder) for name, folder in packages.items()}
    shipped = {
        name: {path for pattern in patterns for path in packages[name].glob(pattern)}
        for name, patterns in CONFIG["package-data"].items()
    }
    assert shipped == {name: files for name, files in found.items() if files}


def test_the_siblings_are_linked_into_the_package() -> None:
    for name in SIBLINGS:
        link = ROOT / "shardir" / name
        assert link.is_symlink()
        assert link.resolve() == ROOT / name
        assert CONFIG["package-dir"][f"shardir.{name}"] == name
