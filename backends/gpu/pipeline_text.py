"""Write the pipelines of a program: the functions of the passes, and the declarations."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count

from shardir.backends.gpu.runtime_files import axes_text, literal
from shardir.backends.pipeline_programs import PipelineProgram, SentValue
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module

MAX_ROW_CHARACTERS = 80

WriteFunction = Callable[[str, Module], str]
"""Returns the text of a function with a name and a program."""


def pipelines_text(
    programs: Sequence[PipelineProgram], mesh: Mesh, write_function: WriteFunction
) -> str:
    """Return the functions of the passes of all pipelines, and the tuple `PIPELINES`."""
    if not programs:
        return ""
    functions: list[str] = []
    lines = ["PIPELINES = ("]
    taken: set[str] = set()
    for program in programs:
        names = {}
        for each in program.passes:
            base = f"stage_{each.name}"
            names[each.name] = name = next(
                name for i in count(1) if (name := base if i == 1 else f"{base}_{i}") not in taken
            )
            taken.add(name)
            functions.append(write_function(name, each.module))
        lines += [f"    {line}" for line in _declaration(program, mesh, names)]
    return "\n\n\n".join([*functions, "\n".join([*lines, ")"])])


def _declaration(program: PipelineProgram, mesh: Mesh, names: dict[str, str]) -> Iterator[str]:
    yield "Pipeline("
    yield f"    axis={literal(program.axis)},"
    yield f"    microbatches={program.microbatches},"
    yield f"    batched={literal(program.batched)},"
    yield "    schedule=("
    for row in program.schedule:
        yield from (f"        {line}" for line in _row_lines(row))
    yield "    ),"
    yield "    passes={"
    for each in program.passes:
        yield f"        {literal(each.name)}: Pass("
        yield f"            {names[each.name]},"
        yield f"            takes={literal(each.takes)},"
        yield f"            gives={literal(each.gives)},"
        yield "        ),"
    yield "    },"
    yield from _sides("forward", program.forward)
    yield from _sides("backward", program.backward)
    yield "    combined=("
    for value in program.combined:
        stated = [value.stage, value.name, value.type.dtype, value.type.shape]
        shared = "" if value.is_shared else ", is_shared=False"
        yield f"        Combined({', '.join(map(literal, stated))}{shared}),"
    yield "    ),"
    yield "    gradients=("
    for gradient in program.gradients:
        terms = tuple((term.stage, term.name, term.window) for term in gradient.terms)
        slices = tuple((dim, axes_text(axes, mesh)) for dim, axes in gradient.slices)
        yield "        Gradient("
        yield f"            {literal(gradient.type.dtype)},"
        yield f"            {literal(gradient.type.shape)},"
        yield f"            terms={literal(terms)},"
        if slices:
            yield f"            slices={literal(slices)},"
        yield "        ),"
    yield "    ),"
    yield f"    loss_scale={program.loss_scale!r},"
    yield "),"


def _row_lines(row: str) -> Iterator[str]:
    """Yield the lines of a string with the actions of a row."""
    parts, line = [], ""
    for cell in row.split(","):
        if line and len(line) + len(cell) >= MAX_ROW_CHARACTERS:
            parts.append(line)
            line = ""
        line += f"{cell},"
    parts.append(line)
    for i, part in enumerate(parts):
        yield f'"{part}"' + ("," if i + 1 == len(parts) else "")


def _sides(name: str, sides: Sequence[Sequence[SentValue]]) -> Iterator[str]:
    yield f"    {name}=("
    for values in sides:
        yield "        ("
        for value in values:
            stated = (value.given, value.taken, value.type.dtype, value.type.shape)
            yield f"            Sent({', '.join(map(literal, stated))}),"
        yield "        ),"
    yield "    ),"
