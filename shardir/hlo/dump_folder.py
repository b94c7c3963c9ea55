"""The files of a folder that XLA wrote with `--xla_dump_to`."""

import re
from dataclasses import dataclass
from pathlib import Path

from shardir.hlo.module import HloModule, parse_number

_FILE = re.compile(r"(module_\d+\.[^.]+)\.(.+)\.txt")
_AFTER_PARTITIONING = re.compile(r".*\.after_[\w\-]*spmd-partition[\w\-]*\..*")
_SDY_MESH = re.compile(r"#sdy\.mesh<\[([^\]]*)\]>")
_SDY_AXIS = re.compile(r'\\?"([^"\\]+)\\?"=(\d+)')


@dataclass(frozen=True, slots=True)
class DumpedModule:
    """The texts of a module: before and after all passes, and right after partitioning.

    XLA writes the text after partitioning only with `--xla_dump_hlo_pass_re=spmd`.
    """

    name: str
    after: Path
    before: Path | None = None
    partitioned: Path | None = None


def find_dumped_modules(folder: Path) -> list[DumpedModule]:
    """Return the modules of a folder whose text after all passes exists, in order."""
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.iterdir()):
        if match := _FILE.fullmatch(path.name):
            files = found.setdefault(match[1], {})
            if match[2].endswith("after_optimizations"):
                files["after"] = path
            elif match[2] == "before_optimizations":
                files["before"] = path
            elif _AFTER_PARTITIONING.fullmatch(path.name):
                files["partitioned"] = path
    return [DumpedModule(name, **files) for name, files in found.items() if "after" in files]


def find_mesh_axes(before: HloModule) -> dict[str, int] | None:
    """Return the axes of the only mesh of a module before partitioning; `None` if it states none,
    several, or an order of devices."""
    meshes = _SDY_MESH.findall(before.attributes.get("frontend_attributes", ""))
    if len(set(meshes)) != 1:
        return None
    axes = {name: parse_number(size) or 1 for name, size in _SDY_AXIS.findall(meshes[0])}
    return axes or None
