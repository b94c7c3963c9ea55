"""Write the text of one program: header, imports, functions, and `main` of one device."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from shardir.backends.emission import Boundary, Emission
from shardir.backends.gpu import rules as rules
from shardir.backends.gpu.constants import constant_files, constants_text
from shardir.backends.gpu.kernels.helpers import functions
from shardir.backends.gpu.layout import wrapped
from shardir.backends.gpu.library_text import definitions, library_text
from shardir.backends.gpu.lowering import lower
from shardir.backends.gpu.names import Names, file_name
from shardir.backends.gpu.vendoring import FOLDER, program_text
from shardir.backends.gpu.writer import WIDTH, Needs, Writer
from shardir.ir import Module
from shardir.mesh import Mesh
from shardir.ops.numerics import NARROW

RESERVED = (
    "Callable", "F", "INTERPRETED", "PROGRAM", "Path", "Program", "Tensor", "cache", "comm",
    "device", "itertools", "libdevice", "main", "math", "np", "os", "run", "tl", "torch", "triton",
)  # fmt: skip
"""Names that the program itself uses; no value may have one of them."""
PRECISIONS = ("ieee", "tf32")
"""Precision of f32 products on GPUs: full f32, or operands rounded to TF32 (10-bit mantissa)."""
HOST_READS = ("while", "case", "eig", "eigh", "svd", "pinv", "least_squares")
"""Operations for which the host reads a result of the device, such as a convergence flag."""

MISSING = f"""\
except ModuleNotFoundError as error:
    if __name__ != "__main__":
        raise
    raise SystemExit(
        f"error: {{error.name}} is not installed; this program needs torch, triton and numpy "
        "(pip install torch triton numpy), and the folder {FOLDER} beside it"
    ) from None
"""
"""Ends a program with a one-line error if a package that it imports is missing."""


def write_program(
    emission: Emission, precision: str = PRECISIONS[0]
) -> tuple[str, dict[str, bytes]]:
    """Return the text of the program, which runs beside the files of `vendoring`, and
    array files.
    """
    needs = Needs()
    main = _main(emission, needs)
    parts = [
        f"{_header(emission)}\n\n{_imports(emission, needs, main, precision)}",
        _section("Arrays", constants_text(needs.constants)),
        _section("Functions that torch lacks", library_text(needs.library)),
        _section("Groups: a Triton kernel, the same in torch, and the launch", _groups(needs)),
        _section("The program of one device", main),
        _section("What it takes and returns", program_text(emission, no_graph(emission.module))),
        'if __name__ == "__main__":\n    run(main, PROGRAM)\n',
    ]
    text = "\n\n\n".join(part.strip("\n") for part in parts if part) + "\n"
    return text, constant_files(needs.constants)


def no_graph(module: Module) -> str:
    """Return the reason why no CUDA graph can contain the program, or "" if one can."""
    for op in module.main.body.walk():
        if op.name in HOST_READS:
            what = f"%{op.results[0].name}" if op.results else "it"
            return f"{op.name} ({what}) makes the host read what the device has computed"
    return ""


def _header(emission: Emission) -> str:
    """Return the program's docstring: mesh, global and local types, and the commands to run it."""
    mesh = emission.mesh
    axes = ", ".join(f"{name}={size}" for name, size in mesh.axes)
    devices = f"{mesh.size} device{'s' * (mesh.size != 1)}"
    where = (
        f"Each device of the mesh [{axes}] runs it on its part:" if axes else "It takes and gives:"
    )
    file = file_name(emission.title)
    lines = [
        f"{emission.title} on {devices}, in torch and Triton.",
        "",
        where,
        "",
        *_table("argument", emission.arguments, mesh.size),
        "",
        *_table("result", emission.results, mesh.size),
        "",
        *_commands(file, emission),
    ]
    lines += ["", "It needs torch 2.11, Triton 3.6, or later ones, and the files beside it."]
    lines += [f"`python {file} --help` tells the rest; it is written by shardir."]
    text = "\n".join(line.rstrip() for line in lines)
    return '"""' + text.replace("\\", "\\\\").replace('"""', "'''") + '\n"""'


def _commands(file: str, emission: Emission) -> list[str]:
    """Return the commands that start the program, in one process or one process per device."""
    size = emission.mesh.size
    rest = "--selftest" if emission.samples else "--arguments DIR --results DIR"
    alone = ["Run it:", "", f"    python {file} {rest}"]
    if size == 1:
        return alone
    return [
        *alone,
        "",
        "with the devices as threads of one process, or with a process for each:",
        "",
        f"    torchrun --nproc-per-node={size} {file} {rest}",
        f"    srun --ntasks={size} python {file} {rest}",
        f"    mpiexec -n {size} python {file} {rest}",
    ]


def _table(what: str, boundaries: Sequence[Boundary], devices: int) -> list[str]:
    rows = [[what, "whole", "on each device"] if devices > 1 else [what, "type"]]
    notes = [""]
    for boundary in boundaries:
        part = [str(boundary.part)] if devices > 1 else []
        rows.append([boundary.label, _cut(boundary), *part])
        notes.append(", ".join(_notes(boundary)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(["  ", *(cell.ljust(n) for cell, n in zip(row, widths, strict=True)), note])
        for row, note in zip(rows, notes, strict=True)
    ]


def _notes(boundary: Boundary) -> Iterator[str]:
    """Yield further properties of an argument or result: donated, captured, partial sums."""
    if boundary.donated:
        yield "donated"
    if boundary.value is not None:
        yield "an array that the function refers to"
    if boundary.sharding.unreduced:
        axes = ", ".join(map(_axis, boundary.sharding.unreduced))
        yield f"to be combined over {axes}: {boundary.sharding.reduction}"


def _cut(boundary: Boundary) -> str:
    """Return the global type, with the mesh axes that shard each dimension."""
    dims = []
    for size, dim in zip(boundary.whole.shape, boundary.sharding.dims, strict=True):
        names = [_axis(axis) for axis in dim.axes]
        cut = f"@{names[0]}" if len(names) == 1 else f"@({', '.join(names)})" if names else ""
        dims.append(f"{size}{cut}")
    return f"{boundary.whole.dtype}[{', '.join(dims)}]"


def _axis(axis: Any) -> str:
    return axis.name if axis.pre == 1 else str(axis)


def _imports(emission: Emission, needs: Needs, main: str, precision: str) -> str:
    arrays = constants_text(needs.constants)
    text = "\n".join([main, library_text(needs.library), _groups(needs), arrays])
    plain = [f"import {name}" for name in ("itertools", "math", "os")
             if re.search(rf"\b{name}\.", text) or (name == "os" and needs.groups)]  # fmt: skip
    if "Callable[" in text:
        plain.append("from collections.abc import Callable")
    if arrays:
        plain.append("from functools import cache")
    if "Path(" in arrays:
        plain.append("from pathlib import Path")
    torch = dict.fromkeys(["import torch", *needs.imports])
    if "np." in arrays:
        torch["import numpy as np"] = None
    if re.search(r"\bF\.", text):
        torch["import torch.nn.functional as F"] = None
    names = "Program, Tensor, run"
    lines = sorted(plain, key=lambda line: (not line.startswith("import"), line))
    installed = [*sorted(torch, key=_import_key), "", f"from {FOLDER} import {names}"]
    lines += ["", "try:", *(f"    {line}".rstrip() for line in installed), *MISSING.splitlines()]
    switches = [
        f'torch.backends.cuda.matmul.fp32_precision = "{precision}"',
        f'torch.backends.cudnn.conv.fp32_precision = "{precision}"',
    ]
    if _multiplies_narrow(emission.module):
        switches += [
            f"torch.backends.cuda.matmul.allow_{kind}_reduced_precision_reduction = False"
            for kind in ("fp16", "bf16")
        ]
    if needs.imports:
        switches += [
            "",
            "# On CPUs groups are computed by their references, unless Triton interprets kernels.",
            'INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"',
        ]
    return "\n".join(lines).strip("\n") + "\n\n" + "\n".join(switches)


def _multiplies_narrow(module: Module) -> bool:
    """Return whether 16-bit floats are summed, for which torch may use a 16-bit accumulator."""
    ops = (op for op in module.main.body.walk() if op.name in ("dot", "convolution"))
    return any(value.type.dtype in NARROW for op in ops for value in op.operands)


def _import_key(line: str) -> tuple[bool, str]:
    return line.startswith("from"), line


def _section(title: str, text: str) -> str:
    return f"# {title}\n\n\n{text}" if text else ""


def _groups(needs: Needs) -> str:
    helpers = [functions()[name].strip("\n") for name in needs.kernels]
    return "\n\n\n".join([*helpers, *needs.functions])


def _main(emission: Emission, needs: Needs) -> str:
    mesh: Mesh = emission.mesh
    body = emission.module.main.body
    names = Names([*RESERVED, *definitions(), *functions()])
    writer = Writer(names, needs, lower, mesh)
    params = [names[param] for param in body.params]
    writer.block(body)
    returned = [writer.name(value) for value in body.returns]
    text = writer.text(body.returns)
    lines = [f"def main({', '.join(['comm', *params])}):"]
    if len(lines[0]) > WIDTH:
        lines = ["def main(", *(f"    {name}," for name in ["comm", *params]), "):"]
    if re.search(r"\bdevice\b", text):
        lines.append("    device = comm.device")
    if text:
        lines.append(text)
    back = f"    return ({', '.join(returned)}{',' if len(returned) == 1 else ''})"
    lines.append(wrapped(back, WIDTH))
    return "\n".join(lines)
