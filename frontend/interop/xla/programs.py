"""Explanations of programs that JAX compiled with XLA."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Protocol, runtime_checkable

from shardir.errors import OpaqueOperationError, PartitionError, PropagateError, RuleError
from shardir.frontend.errors import ArgumentError
from shardir.frontend.interop.xla.compilation import open_lowered
from shardir.frontend.interop.xla.remedies import find_remedies
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.source_locations import with_location
from shardir.hlo.module import HloModule
from shardir.hlo.parser import parse_hlo
from shardir.ir.module import Module
from shardir.passes.explain import compare_with_xla, xla_communication
from shardir.passes.explain.propagated_program import HasModule, pipeline_of
from shardir.passes.explain.xla.xla_communication import XlaCommunication, XlaComparison
from shardir.stablehlo.reader import read as read_stablehlo


@runtime_checkable
class HasText(Protocol):
    """A program with a text, such as `jax.stages.Compiled`."""

    def as_text(self) -> str | None: ...


@runtime_checkable
class HasAxes(Protocol):
    """A mesh of JAX."""

    @property
    def shape(self) -> Mapping[str, int]: ...


@runtime_checkable
class JaxLowered(Protocol):
    """A program that JAX has lowered to StableHLO: `jax.stages.Lowered`."""

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str: ...

    def compile(self) -> HasText: ...


def explain_xla(
    program: JaxLowered | HasText | str,
    source: JaxLowered | HasModule | Module | None = None,
    *,
    mesh: Mesh | Mapping[str, int] | None = None,
    compilations: int = 32,
) -> XlaCommunication | XlaComparison:
    """Explain the collectives that XLA inserted into a program.

    `program` is the result of `jax.jit(f).lower(...)`, which this function compiles, or of
    `compile()`, or the HLO text of a partitioned module. `source` is the program that XLA received:
    the lowered program of JAX, or of `shardir.jit`. With it, or if `program` is lowered, the result
    compares XLA's collectives with those of shardir's plan, by line. Otherwise the result describes
    XLA's collectives with their causes, and `mesh` (a mesh, or sizes by name; by default that of
    the arguments) names the axes.

    If the lowered program of JAX is known, this function searches the annotations that make XLA
    send fewer bytes. It compiles the program with each candidate, at most `compilations` times,
    and the result has the annotations that XLA follows.

    Raises `ArgumentError` if `program` is none of these, `ParseError` if the text is no HLO, and
    `ExplainError` if XLA has not partitioned it.
    """
    if isinstance(program, JaxLowered):
        source = program if source is None else source
        program = program.compile()
    if not isinstance(program, (str, HasText)):
        raise ArgumentError(
            with_location(
                "explain_xla takes the result of jax.jit(f).lower(...) or of compile(), or HLO "
                f"text, got {brief(program)}"
            )
        )
    text = program if isinstance(program, str) else program.as_text() or ""
    hlo = parse_hlo(text)
    if source is None:
        if mesh is None:
            return xla_communication(hlo, _mesh_axes(program, hlo))
        return xla_communication(hlo, dict(mesh.shape) if isinstance(mesh, Mesh) else mesh)
    if not isinstance(source, JaxLowered):
        return compare_with_xla(hlo, source if isinstance(source, Module) else source.module)
    module = read_stablehlo(source.as_text(debug_info=True))
    try:
        comparison = compare_with_xla(hlo, module)
    except (OpaqueOperationError, PartitionError, PropagateError, RuleError) as error:
        sizes = next((each.sizes for each in module.meshes if not each.is_maximal), None)
        return replace(xla_communication(hlo, sizes), note=f"no comparison with a plan: {error}")
    lowered = open_lowered(source, hlo) if compilations else None
    if lowered is None:
        return comparison
    remedies = find_remedies(lowered, comparison, pipeline_of(module).decide(module), compilations)
    return replace(
        comparison,
        is_compiled=True,
        lines=tuple(
            replace(line, remedies=remedies.get(line.line, ())) for line in comparison.lines
        ),
    )


def _mesh_axes(program: object, hlo: HloModule) -> Mapping[str, int] | None:
    """Return the axes of the mesh of the arguments of a program that JAX compiled."""
    positional, keywords = getattr(program, "input_shardings", ((), {}))
    pending: list[object] = [positional, keywords]
    while pending:
        each = pending.pop()
        if isinstance(each, Mapping):
            pending += each.values()
        elif isinstance(each, list | tuple):
            pending += each
        elif isinstance(mesh := getattr(each, "mesh", None), HasAxes):
            axes = {str(name): int(size) for name, size in mesh.shape.items()}
            if prod(axes.values()) == hlo.partition_count:
                return axes
    return None
