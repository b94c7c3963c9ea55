"""Write the text of one program: header, imports, functions, and `main` of one device."""

import re
from collections.abc import Iterator, Sequence

from shardir import ops
from shardir.backends.emission import Emission, EmissionError, ProgramValue
from shardir.backends.gpu import rules as rules
from shardir.backends.gpu.constants import constant_files, constants_text
from shardir.backends.gpu.function_writer import MAX_LINE_CHARACTERS, FunctionWriter, ProgramNeeds
from shardir.backends.gpu.identifiers import FunctionNames, make_file_name
from shardir.backends.gpu.kernels.helpers import helper_functions
from shardir.backends.gpu.library_text import definitions, library_text
from shardir.backends.gpu.line_wrapping import wrap_line
from shardir.backends.gpu.lowering import lower_operation
from shardir.backends.gpu.pipeline_text import pipelines_text
from shardir.backends.gpu.runtime_files import RUNTIME_FOLDER, program_declaration
from shardir.backends.pipeline_programs import program_blocks
from shardir.ir.dtypes import DTYPE_INFO, NARROW_FLOATS
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module
from shardir.ir.sharding import Axis

RESERVED_NAMES = (
    "Callable", "Combined", "F", "Gradient", "INTERPRETED", "PIPELINES", "PROGRAM", "Pass", "Path",
    "Pipeline", "Program", "Sent", "Tensor", "cache", "comm", "device", "itertools", "libdevice",
    "main", "math", "np", "os", "run", "run_pipeline", "tl", "torch", "triton",
)  # fmt: skip
"""Names that the program itself uses; no value may have one of them."""
PRECISIONS = ("ieee", "tf32")
"""Precision of f32 products on GPUs: full f32, or operands rounded to TF32 (10-bit mantissa)."""
HOST_READING_OPERATIONS = (
    ops.while_,
    ops.case,
    ops.eig,
    ops.eigh,
    ops.svd,
    ops.pinv,
    ops.least_squares,
)
"""Operations for which the host reads a result of the device, such as a convergence flag."""

PIPELINE_NAMES = (
    "Combined", "Gradient", "Pass", "Pipeline", "Program", "Sent", "Tensor", "run", "run_pipeline",
)  # fmt: skip
"""Names that a program with pipelines imports from its runtime."""

MISSING_PACKAGE_HANDLER = f"""\
except ModuleNotFoundError as error:
    if __name__ != "__main__":
        raise
    raise SystemExit(
        f"error: {{error.name}} is not installed; this program needs torch, triton and numpy "
        "(pip install torch triton numpy), and the folder {RUNTIME_FOLDER} beside it"
    ) from None
"""
"""Ends a program with a one-line error if a package that it imports is missing."""


def _check_types(emission: Emission) -> None:
    """Raise `EmissionError` for arrays of elements of less than a byte."""
    blocks = list(program_blocks(emission.module))
    values = [x for block in blocks for x in block.params]
    values += [x for block in blocks for op in block.walk() for x in op.results]
    for value in values:
        info = DTYPE_INFO.get(value.type.dtype)
        if info is not None and info.bits < info.memory_bits:
            raise EmissionError(
                f"%{value.name} is {value.type}; GPU programs have no elements of less than "
                "8 bits, convert it with astype('int8') or astype('float8_e4m3fn')"
            )


def write_program(
    emission: Emission, precision: str = PRECISIONS[0]
) -> tuple[str, dict[str, bytes]]:
    """Return the text of the program, which runs beside the files of `runtime_files`, and
    array files.
    """
    _check_types(emission)
    needs = ProgramNeeds(precision)
    mesh = emission.mesh
    main = _write_function("main", emission.module, needs, mesh)
    stages = pipelines_text(
        needs.pipelines, mesh, lambda name, module: _write_function(name, module, needs, mesh)
    )
    parts = [
        f"{_header(emission)}\n\n{_imports(emission, needs, main + stages, precision)}",
        _section("Arrays", constants_text(needs.constants)),
        _section("Functions that torch lacks", library_text(needs.library)),
        _section("Groups: a Triton kernel, the same in torch, and the launch", _groups_text(needs)),
        _section("The passes of the stages, and the schedules", stages),
        _section("The program of one device", main),
        _section(
            "What it takes and returns",
            program_declaration(emission, why_no_graph(emission.module)),
        ),
        'if __name__ == "__main__":\n    run(main, PROGRAM)\n',
    ]
    text = "\n\n\n".join(part.strip("\n") for part in parts if part) + "\n"
    return text, constant_files(needs.constants)


def why_no_graph(module: Module) -> str:
    """Return the reason why no CUDA graph can contain the program, or "" if one can."""
    for op in module.main.body.walk():
        if op.spec is ops.pipeline_call:
            return f"{op.name} (%{op.results[0].name}) makes the host start transfers"
        if op.spec in HOST_READING_OPERATIONS:
            what = f"%{op.results[0].name}" if op.results else "it"
            return f"{op.name} ({what}) makes the host read what the device has computed"
    return ""


def _header(emission: Emission) -> str:
    """Return the program's docstring: mesh, global and local types, and the commands to run it."""
    mesh = emission.mesh
    axes = ", ".join(f"{name}={size}" for name, size in mesh.axes)
    devices = f"{mesh.size} device{'s' * (mesh.size != 1)}"
    where = (
        f"Each device of the mesh [{axes}] runs it on its shards:"
        if axes
        else "It takes and returns:"
    )
    file = make_file_name(emission.title)
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
    lines += [f"`python {file} --help` lists all options; generated by shardir."]
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


def _table(what: str, boundaries: Sequence[ProgramValue], devices: int) -> list[str]:
    rows = [[what, "global", "on each device"] if devices > 1 else [what, "type"]]
    notes = [""]
    for boundary in boundaries:
        part = [str(boundary.shard_type)] if devices > 1 else []
        rows.append([boundary.label, _sharded_type(boundary), *part])
        notes.append(", ".join(_notes(boundary)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(["  ", *(cell.ljust(n) for cell, n in zip(row, widths, strict=True)), note])
        for row, note in zip(rows, notes, strict=True)
    ]


def _notes(boundary: ProgramValue) -> Iterator[str]:
    """Yield further properties of an argument or result: donated, captured, partial sums."""
    if boundary.donated:
        yield "donated"
    if boundary.value is not None:
        yield "an array that the function refers to"
    if boundary.sharding.unreduced:
        axes = ", ".join(map(_axis, boundary.sharding.unreduced))
        yield f"to be combined over {axes}: {boundary.sharding.reduction}"


def _sharded_type(boundary: ProgramValue) -> str:
    """Return the global type, with the mesh axes that shard each dimension."""
    dims = []
    for size, dim in zip(boundary.unsharded_type.shape, boundary.sharding.dims, strict=True):
        names = [_axis(axis) for axis in dim.axes]
        axes_text = f"@{names[0]}" if len(names) == 1 else f"@({', '.join(names)})" if names else ""
        dims.append(f"{size}{axes_text}")
    return f"{boundary.unsharded_type.dtype}[{', '.join(dims)}]"


def _axis(axis: Axis) -> str:
    return axis.name if axis.pre == 1 else str(axis)


def _imports(emission: Emission, needs: ProgramNeeds, main: str, precision: str) -> str:
    arrays = constants_text(needs.constants)
    text = "\n".join([main, library_text(needs.library), _groups_text(needs), arrays])
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
    if needs.pipelines:
        names = "(\n    " + ",\n    ".join(PIPELINE_NAMES) + ",\n)"
    lines = sorted(plain, key=lambda line: (not line.startswith("import"), line))
    installed = [*sorted(torch, key=_import_key), "", f"from {RUNTIME_FOLDER} import {names}"]
    lines += [
        "",
        "try:",
        *(f"    {line}".rstrip() for text in installed for line in text.split("\n")),
        *MISSING_PACKAGE_HANDLER.splitlines(),
    ]
    switches = [
        f'torch.backends.cuda.matmul.fp32_precision = "{precision}"',
        f'torch.backends.cudnn.conv.fp32_precision = "{precision}"',
    ]
    if _multiplies_narrow_floats(emission.module):
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


def _multiplies_narrow_floats(module: Module) -> bool:
    """Return whether 16-bit floats are summed, for which torch may use a 16-bit accumulator."""
    return any(
        value.type.dtype in NARROW_FLOATS
        for block in program_blocks(module)
        for op in block.walk()
        if op.spec in (ops.dot, ops.convolution)
        for value in op.operands
    )


def _import_key(line: str) -> tuple[bool, str]:
    return line.startswith("from"), line


def _section(title: str, text: str) -> str:
    return f"# {title}\n\n\n{text}" if text else ""


def _groups_text(needs: ProgramNeeds) -> str:
    helpers = [helper_functions()[name].strip("\n") for name in needs.kernels]
    return "\n\n\n".join([*helpers, *needs.functions])


def _write_function(name: str, module: Module, needs: ProgramNeeds, mesh: Mesh) -> str:
    """Return the text of a function that computes the body of a module on one device."""
    body = module.main.body
    # The functions of a program share its kernels and constants.
    defined = re.findall(r"^def (\w+)", "\n".join(needs.functions), re.MULTILINE)
    taken = [*RESERVED_NAMES, *definitions(), *helper_functions(), *defined, *needs.constants]
    names = FunctionNames(taken)
    writer = FunctionWriter(names, needs, lower_operation, mesh)
    params = [names[param] for param in body.params]
    writer.write_block(body)
    returned = [writer.name(value) for value in body.returns]
    text = writer.text(body.returns)
    lines = [f"def {name}({', '.join(['comm', *params])}):"]
    if len(lines[0]) > MAX_LINE_CHARACTERS:
        lines = [f"def {name}(", *(f"    {name}," for name in ["comm", *params]), "):"]
    if re.search(r"\bdevice\b", text):
        lines.append("    device = comm.device")
    if text:
        lines.append(text)
    back = f"    return ({', '.join(returned)}{',' if len(returned) == 1 else ''})"
    lines.append(wrap_line(back, MAX_LINE_CHARACTERS))
    return "\n".join(lines)
