"""Files written beside the text of a program: its runtime and its data.

The runtime is a copy of `vendored` whose imports are rewritten to the folder it is written to.
"""

import io
import json
import re
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import numpy as np

from shardir.backends.emission import Emission, ProgramValue
from shardir.backends.pipeline_programs import emitted_pipeline, program_blocks
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module
from shardir.ir.sharding import Axes

RUNTIME_FOLDER = "shardir_runtime"
"""Folder of the runtime files, and the package from which the program imports them."""
_HOME = "shardir.backends.gpu.vendored"
_MONITOR = "action_monitor"
"""The module of `shardir.backends` that pipelines also use without shardir."""


def runtime_files() -> dict[str, str]:
    """Return the runtime files that every program needs, keyed by path below the
    program's folder.
    """
    # Found by path: importing the package would import torch, which emission does not need.
    found = sorted((Path(__file__).parent / "vendored").glob("*.py"))
    monitor = Path(__file__).parents[1] / f"{_MONITOR}.py"
    return {
        f"{RUNTIME_FOLDER}/{file.name}": file.read_text(encoding="utf-8")
        .replace(_HOME, RUNTIME_FOLDER)
        .replace(f"shardir.backends.{_MONITOR}", f"{RUNTIME_FOLDER}.{_MONITOR}")
        for file in (*found, monitor)
    }


def data_files(emission: Emission) -> dict[str, bytes]:
    """Return the files of captured arrays and of the self-test's samples."""
    written: dict[str, bytes] = {}
    names = file_names(emission.arguments)
    for name, argument in zip(names, emission.arguments, strict=True):
        if argument.value is not None:
            written[f"values/{name}.npy"] = _npy_bytes(argument.value)
    if emission.samples is not None:
        for name, argument, array in zip(
            names, emission.arguments, emission.samples.arguments, strict=True
        ):
            if argument.value is None:
                written[f"selftest/arguments/{name}.npy"] = _npy_bytes(array)
        results = file_names(emission.results)
        for name, array in zip(results, emission.samples.results, strict=True):
            written[f"selftest/results/{name}.npy"] = _npy_bytes(array)
    return written


def file_names(boundaries: Sequence[ProgramValue]) -> list[str]:
    """Return unique file names for arguments or results, derived from their labels."""
    names: dict[str, None] = {}
    for boundary in boundaries:
        name = plain = re.sub(r"[^\w.-]+", "_", boundary.label).strip("._-") or "array"
        for number in count(2):
            if name not in names:
                break
            name = f"{plain}_{number}"
        names[name] = None
    return list(names)


def program_declaration(emission: Emission, no_graph: str = "") -> str:
    """Return the declaration `PROGRAM = Program(...)`, for a module that imports Program and
    Tensor.
    """
    lines = [
        "PROGRAM = Program(",
        f"    title={literal(emission.title)},",
        f"    mesh={literal(dict(emission.mesh.axes))},",
        "    arguments=(",
        *_tensors(emission.arguments, emission.mesh),
        "    ),",
        "    results=(",
        *_tensors(emission.results, emission.mesh),
        "    ),",
        f"    groups={literal(communication_groups(emission.module, emission.mesh))},",
        "    file=__file__,",
        *([f"    no_graph={literal(no_graph)},"] if no_graph else []),
        ")",
    ]
    return "\n".join(lines) + "\n"


def axes_text(axes: Axes, mesh: Mesh) -> tuple[str, ...]:
    """Return axes as the methods of `Comm` take them: `("data", "model:(1)2")`."""
    return tuple(axis.name if axis.is_full(mesh) else str(axis) for axis in axes)


def communication_groups(module: Module, mesh: Mesh) -> tuple[tuple[str, ...], ...]:
    """Return the tuples of axes over which a program communicates, in order of first use.

    Permutes are point-to-point and need no group.
    """
    found: dict[tuple[str, ...], None] = {}
    for block in program_blocks(module):
        for op in block.walk():
            if op.spec.collective and op.attrs.get("axes"):
                found[axes_text(op.attrs["axes"], mesh)] = None
    for op in module.main.body.walk():
        if (pipeline := emitted_pipeline(op)) is not None:
            found[pipeline.axis,] = None
    spmd = module.main.spmd
    for result in spmd.results if spmd is not None else ():
        # A result with pending reductions is reduced before it is written or compared.
        if result.sharding.unreduced:
            found[axes_text(result.sharding.unreduced, mesh)] = None
    return tuple(found)


def _tensors(boundaries: Sequence[ProgramValue], mesh: Mesh) -> Iterator[str]:
    """Yield the declarations of arguments or results, one line each."""
    for name, boundary in zip(file_names(boundaries), boundaries, strict=True):
        sharding = boundary.sharding
        positional: list[object] = [
            name,
            boundary.unsharded_type.dtype,
            boundary.unsharded_type.shape,
        ]
        if any(sharding.axes):
            positional.append(tuple(axes_text(axes, mesh) for axes in sharding.axes))
        named = {
            "label": boundary.label if boundary.label != name else "",
            "donated": boundary.donated,
            "value": f"values/{name}.npy" if boundary.value is not None else "",
            "unreduced": axes_text(sharding.unreduced, mesh),
            "reduction": sharding.reduction if sharding.unreduced else "",
        }
        keywords = [f"{key}={literal(value)}" for key, value in named.items() if value]
        yield f"        Tensor({', '.join([*map(literal, positional), *keywords])}),"


def literal(value: object) -> str:
    """Return a string, number or container as the text that a formatter would produce."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(k)}: {literal(v)}' for k, v in value.items())}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


def _npy_bytes(array: object) -> bytes:
    """Return an array as the bytes of a `.npy` file; bf16 has the dtype NumPy gives
    unknown types.
    """
    file = io.BytesIO()
    np.save(file, np.asarray(array), allow_pickle=False)
    return file.getvalue()
