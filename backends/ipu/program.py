"""Write the text of a program: header comment, includes, helpers, and the function that builds it.

The last line of a program names its contract and the function that builds its graph; the header
`shardir_ipu_host.hpp` defines `main` with them.
"""

import re
from collections.abc import Sequence
from textwrap import wrap

from shardir.backends.emission import Emission, ProgramValue
from shardir.backends.ipu.codegen.device_types import element_of, initializer_text, physical_type
from shardir.backends.ipu.codegen.emitter import ProgramEmitter
from shardir.backends.ipu.codegen.identifiers import Identifiers
from shardir.backends.ipu.codegen.line_wrapping import wrap_statement
from shardir.backends.ipu.codegen.multiply_add import find_multiply_adds
from shardir.backends.ipu.helpers.helper_table import helper_texts
from shardir.backends.ipu.lowering import (
    collectives as collectives,
    contraction as contraction,
    data_movement as data_movement,
    fused_groups as fused_groups,
    indexing as indexing,
    random as random,
    reductions as reductions,
    refusals as refusals,
    sort as sort,
    windows as windows,
)
from shardir.backends.ipu.lowering.argument_layouts import argument_layouts
from shardir.backends.ipu.lowering.control import assign_variables, write_block
from shardir.backends.ipu.lowering.replica_groups import constant_definitions
from shardir.backends.ipu.prepare.resource_checks import TILES_PER_IPU, ReplicaMemory
from shardir.display.byte_sizes import show_bytes
from shardir.text.printer import Printer, print_mesh, unique_names

SDK_HEADERS = {
    "gcl::": "gcl/Collectives.hpp",
    "poplin::matMul": "poplin/MatMul.hpp",
    "poplin::createMatMul": "poplin/MatMul.hpp",
    "poplin::addCodelets": "poplin/codelets.hpp",
    "popops::cast": "popops/Cast.hpp",
    "popops::countedLoop": "popops/Loop.hpp",
    "popops::dynamic": "popops/DynamicSlice.hpp",
    "popops::gather": "popops/Gather.hpp",
    "popops::map": "popops/ElementWise.hpp",
    "popops::reduce": "popops/Reduce.hpp",
    "popops::scatter": "popops/Scatter.hpp",
    "popops::topK": "popops/TopK.hpp",
    "popops::TopKParams": "popops/TopK.hpp",
    "popops::UpdateComputationFunc": "popops/Scatter.hpp",
    "popops::zero": "popops/Zero.hpp",
    "popops::addCodelets": "popops/codelets.hpp",
    "poputil::mapTensorLinearly": "poputil/TileMapping.hpp",
}
"""The header of each call, keyed by prefix."""

STANDARD_HEADERS = {
    "std::min(": "algorithm",
    "std::max(": "algorithm",
    "std::size_t": "cstddef",
    "std::uint16_t": "cstdint",
    "std::initializer_list": "initializer_list",
    "std::numeric_limits": "limits",
    "std::map": "map",
    "std::string": "string",
    "std::vector": "vector",
}


def write_program(emission: Emission, memory: ReplicaMemory, strided: str, keeps_nan: bool) -> str:
    """Return the text of the program."""
    main = emission.module.main
    e = ProgramEmitter(emission.mesh, Printer(emission.module.meshes), strided, keeps_nan)
    e.spellings = dict(unique_names(main))
    e.multiply_adds = find_multiply_adds(main.body)
    inputs, outputs = port_names(emission)
    _arguments(e, emission, inputs)
    arguments, e.lines = e.lines, []
    write_block(e, main.body)
    _results(e, emission, outputs)
    body = e.lines
    helpers = helper_texts(e.helpers)
    constants = constant_definitions(e)
    used = "\n".join([*helpers, *constants, *arguments, *e.preamble, *body])
    build = ["void build(shardir_ipu::Program &program) {"]
    used_in = "\n".join([*arguments, *e.preamble, *body])
    if "graph" in used_in:
        build.append("  Graph &graph = program.graph;")
    if re.search(r"\bstep\b", used_in):
        build.append("  Sequence &step = program.step;")
    if any(word in used for word in ("popops::", "poplin::", "gcl::")):
        build.append("  popops::addCodelets(program.graph);")
    if "poplin::" in used:
        build.append("  poplin::addCodelets(program.graph);")
    build += ["", *arguments] if arguments else []
    build += ["", *e.preamble] if e.preamble else []
    build += ["", *body, "}"]
    text = "\n".join(["\n".join(build), *helpers])
    sections = [
        _introduction(emission, memory),
        _includes(text),
        _usings(text),
        "namespace {",
        *helpers,
        "\n".join(constants),
        _contract(emission, inputs, outputs),
        "\n".join(build),
        "}  // namespace",
        "SHARDIR_IPU_ENTRY(contract, build)",
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def port_names(emission: Emission) -> tuple[list[str], list[str]]:
    """Return the names of the streams and files of arguments and of results."""
    names = Identifiers()
    inputs = [names.make_unused(b.name) for b in emission.arguments]
    return inputs, [names.make_unused(b.label) for b in emission.results]


def _arguments(e: ProgramEmitter, emission: Emission, ports: Sequence[str]) -> None:
    layouts = argument_layouts(emission.module.main.body)
    for param, port in zip(emission.module.main.body.params, ports, strict=True):
        layout = layouts.get(param)
        place = f", {layout.text(param)}" if layout else ""
        e.define(param, f'program.argument("{port}"{place})')


def _results(e: ProgramEmitter, emission: Emission, ports: Sequence[str]) -> None:
    """Copy results into donated arguments that they replace, and send the others to the host."""
    body = emission.module.main.body
    places = match_donations(emission)
    kept = [body.params[i] for i in places.values()]
    values = [body.returns[i] for i in places]
    sent: dict[int, str] = {i: e.text(body.params[a]) for i, a in places.items()}
    if places:
        for i, value in enumerate(body.returns):
            if i not in sent and (value in e.multi_root_views or e.roots.get(value, value) in kept):
                held = e.temporary(
                    f"{value.name}_result", e.variable_text(value.type, e.label(value))
                )
                e.add(f"step.add(Copy({e.text(value)}, {held}));")
                sent[i] = held
        e.lines.append("  // Donated arguments get the results that the next step starts with.")
        assign_variables(e, [e.text(param) for param in kept], values, kept)
    for i, (value, port) in enumerate(zip(body.returns, ports, strict=True)):
        e.add(f'program.result("{port}", {sent.get(i, e.text(value))});')


def match_donations(emission: Emission) -> dict[int, int]:
    """Map each result that replaces a donated argument to the first argument that fits."""
    free = [i for i, b in enumerate(emission.arguments) if b.donated]
    places: dict[int, int] = {}
    for i, result in enumerate(emission.results):
        for argument in free:
            given = emission.arguments[argument]
            if given.shard_type == result.shard_type and given.sharding == result.sharding:
                places[i] = argument
                free.remove(argument)
                break
    return places


def _introduction(emission: Emission, memory: ReplicaMemory) -> str:
    mesh, title = emission.mesh, emission.title
    count = mesh.size
    what = "one IPU" if count == 1 else f"{count} IPUs, a replica on each"
    lines = [f"{title}: a program for {what}. Emitted by shardir."]
    if mesh.axes:
        lines += ["", f"  {print_mesh(mesh)}   (replicas in row-major order)"]
    for word, boundaries in (("Arguments", emission.arguments), ("Results", emission.results)):
        lines += ["", f"{word}, with what one replica holds of each:", ""]
        lines += [f"  {_describe_boundary(b, emission)}" for b in boundaries] or ["  none"]
    lines += [
        "",
        *wrap(
            f"On a replica at most {show_bytes(memory.peak)} live at once, {memory.tile_bytes} "
            "bytes on "
            f"each of {TILES_PER_IPU} tiles ({memory.tile_fraction:.1%}), code and exchange not "
            "counted.",
            94,
        ),
    ]
    lines += [
        "",
        "Build with the Poplar SDK, and run:",
        "",
        f"  g++ -std=c++17 -O2 {file_name(emission)} -o {file_stem(emission)} \\",
        "    -lgcl -lpoplin -lpopops -lpoputil -lpoplar",
        f"  ./{file_stem(emission)} --arguments arguments --results results",
    ]
    return "\n".join(f"// {line}".rstrip() for line in lines)


def _describe_boundary(boundary: ProgramValue, emission: Emission) -> str:
    whole = Printer(emission.module.meshes).sharded_type(boundary.unsharded_type, boundary.sharding)
    label = boundary.label if boundary.label != boundary.name else boundary.name
    donated = ", donated" if boundary.donated else ""
    part = f", {boundary.shard_type}" if boundary.shard_type != boundary.unsharded_type else ""
    return f"{label}: {whole}{part}{donated}"


def file_stem(emission: Emission) -> str:
    """Return the name of a program's files, without suffix."""
    return re.sub(r"\W+", "_", emission.title).strip("_") or "program"


def file_name(emission: Emission) -> str:
    """Return the name of the C++ file."""
    return f"{file_stem(emission)}.cpp"


def _includes(text: str) -> str:
    standard = sorted({header for word, header in STANDARD_HEADERS.items() if word in text})
    sdk = sorted(
        {header for word, header in SDK_HEADERS.items() if word in text}
        | {"poplar/Graph.hpp", "poplar/Program.hpp"}
    )
    lines = ['#include "shardir_ipu_host.hpp"', ""]
    lines += [f"#include <{header}>" for header in sdk]
    if standard:
        lines += ["", *(f"#include <{header}>" for header in standard)]
    return "\n".join(lines)


def _usings(text: str) -> str:
    lines = [f"using poplar::{name};" for name in ("Graph", "Tensor")]
    for name in ("Copy", "CrossReplicaCopy", "If", "RepeatWhileTrue", "Sequence", "Switch"):
        if re.search(rf"\b{name}\b[ (&]", text):
            lines.append(f"using poplar::program::{name};")
    if "pe::" in text:
        lines.append("namespace pe = popops::expr;")
    return "\n".join(lines)


def _contract(emission: Emission, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """Return the function that declares the program's arguments and results."""
    lines = [
        "// The program's arguments and results with their shardings: for each dimension the sizes",
        "// and strides, in replicas, of the mesh axes that shard it.",
        "shardir_ipu::Contract contract() {",
    ]
    head = f'  return {{"{emission.title}", {emission.mesh.size},'
    lines.append(head)
    for ports, boundaries, end in (
        (inputs, emission.arguments, ","),
        (outputs, emission.results, "};"),
    ):
        rows = [_port_text(name, b, emission) for name, b in zip(ports, boundaries, strict=True)]
        lines += _list_rows(rows, "          ", end)
    return "\n".join([*lines, "}"])


def _list_rows(rows: Sequence[str], indent: str, end: str) -> list[str]:
    if not rows:
        return [f"{indent}{{}}{end}"]
    lines = []
    for i, row in enumerate(rows):
        opening = "{" if i == 0 else " "
        closing = f"}}{end}" if i == len(rows) - 1 else ","
        lines += wrap_statement(f"{opening}{row}{closing}", indent)
    return lines


def _port_text(name: str, boundary: ProgramValue, emission: Emission) -> str:
    whole, part = physical_type(boundary.unsharded_type), physical_type(boundary.shard_type)
    dim_texts = [
        "{" + ", ".join(f"{{{a.size}, {a.stride(emission.mesh)}}}" for a in dim.axes) + "}"
        for dim in boundary.sharding.dims
    ]
    dim_texts += ["{}"] * (whole.rank - boundary.unsharded_type.rank)
    label = boundary.label.replace("\\", "\\\\").replace('"', '\\"')
    element = element_of(boundary.unsharded_type).poplar
    return (
        f'{{"{name}", "{label}", {element}, {initializer_text(whole.shape)}, '
        f"{initializer_text(part.shape)}, {{{', '.join(dim_texts)}}}}}"
    )
