"""Explanations of the collectives that XLA inserted, beside those of shardir's plan.

`xla_communication` describes the collectives in XLA's text of a partitioned module.
`compare_with_xla` also partitions the program that XLA received, and compares the bytes line by
line. Where XLA sends more, the report shows which constraint states the sharding of our plan.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from shardir.cost.communication import Collective, CommunicationTotal, sum_by, sum_collectives
from shardir.errors import count_noun
from shardir.hlo.collectives import list_hlo_collectives
from shardir.hlo.module import HloModule
from shardir.ir.location import SourceLocations, name_cell
from shardir.ir.module import Block, Loc, Module, Value
from shardir.ir.sharding import Sharding
from shardir.passes.collectives.combine import CombineCollectives
from shardir.passes.explain.communication import Communication, communication, tabulate
from shardir.passes.explain.propagated_program import ExplainError, Program, module_of, pipeline_of
from shardir.passes.explain.reports import Report
from shardir.passes.explain.xla.xla_causes import XlaCause, find_xla_causes
from shardir.passes.pipeline import Pipeline

MAX_CONSTRAINTS = 3
"""The maximum number of constraints that are shown for a line."""


@dataclass(frozen=True, slots=True, repr=False)
class XlaCommunication(Report):
    """The collectives of a module that XLA has partitioned.

    `arrays` is the number of arrays that they communicate: XLA combines collectives of several
    arrays into one. `causes` has the cause of each row of `communication`.
    """

    module: str
    communication: Communication
    arrays: int
    causes: tuple[XlaCause, ...]
    executed_arrays: int = 0
    """The number of arrays over all executions."""
    inserted: CommunicationTotal | None = None
    """The collectives right after partitioning, before XLA simplifies and combines them; `None` if
    they are unknown."""
    note: str = ""
    """The reason why the collectives are not compared with a plan; usually empty."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of the user's program after which XLA sends fewer bytes.

    `old` is the expression at `loc` in the source file, `new` its replacement. `sent` is the number
    of bytes that a device sends in the whole program with all remedies of the line, as compiled by
    XLA; `None` if the change was not compiled.
    """

    loc: Loc
    old: str
    new: str
    sent: int | None


@dataclass(frozen=True, slots=True)
class Constraint:
    """A sharding of our plan as an annotation: `with_sharding_constraint(value, spec)`."""

    value: str
    type: str
    spec: str


@dataclass(frozen=True, slots=True)
class LineComparison:
    """The collectives of one line of the user's program, by kind, in XLA's program and in ours.

    `extra` is the number of bytes that a device sends more in XLA's program (negative if fewer),
    `constraints` are annotations that state the shardings of our plan on this line, `collectives`
    are those of XLA with their causes. `remedies` are changes of the line that were compiled or are
    local by construction; they are applied together.
    """

    line: str
    xla: tuple[tuple[str, CommunicationTotal], ...]
    planned: tuple[tuple[str, CommunicationTotal], ...]
    extra: int
    constraints: tuple[Constraint, ...]
    collectives: tuple[tuple[Collective, XlaCause], ...] = ()
    remedies: tuple[Remedy, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class XlaComparison(Report):
    """XLA's collectives beside those of our plan for the same program.

    `combined` is the total of our plan after `combine-collectives`. Collectives of loops with an
    unknown trip count are counted once. `lines` are in order of the bytes that XLA sends more.
    `is_compiled` states that annotations were compiled to find the remedies of the lines.
    """

    xla: XlaCommunication
    planned: Communication
    combined: CommunicationTotal
    lines: tuple[LineComparison, ...]
    is_compiled: bool = False


def xla_communication(
    module: HloModule,
    mesh: Mapping[str, int] | None = None,
    *,
    after_partitioning: HloModule | None = None,
) -> XlaCommunication:
    """Return the collectives of a module of XLA; `mesh` names the axes.

    `after_partitioning` is the same module right after the partitioner.

    Raises `ExplainError` if XLA has not partitioned the module yet, or if the mesh has another
    number of devices than the module.
    """
    if module.partition_count * module.replica_count == 1:
        raise ExplainError(
            f"the module {module.name} is not partitioned, so it has no collectives; use the text "
            "after optimizations: module_*.after_optimizations.txt of --xla_dump_to, or "
            "jax.jit(f).lower(...).compile().as_text()"
        )
    if module.is_before_partitioning:
        raise ExplainError(
            f"the module {module.name} is the one before partitioning, so XLA has not inserted "
            "collectives yet; use the text after optimizations of the same folder, "
            "module_*.after_optimizations.txt"
        )
    count = module.partition_count * module.replica_count
    if mesh and prod(mesh.values()) != count:
        axes = ",".join(f"{name}={size}" for name, size in mesh.items())
        raise ExplainError(
            f"the mesh {axes} has {count_noun(prod(mesh.values()), 'device')}, and the module "
            f"{module.name} runs on {count}; use the mesh with which XLA compiled it"
        )
    collectives = list_hlo_collectives(module, mesh)
    causes = find_xla_causes(module)
    rows = [
        replace(
            row,
            loc=_relative_to_folder(row.loc),
            combined_locs=tuple(replace(loc, file=_shown_file(loc)) for loc in row.combined_locs),
        )
        for row in collectives.rows
    ]
    return XlaCommunication(
        module.name,
        tabulate(rows),
        collectives.arrays,
        tuple(causes[row.value] for row in collectives.rows),
        collectives.executed_arrays,
        None
        if after_partitioning is None
        else sum_collectives(list_hlo_collectives(after_partitioning, mesh).rows),
    )


def compare_with_xla(
    module: HloModule,
    program: Program,
    *,
    places: SourceLocations | None = None,
    pipeline: str | None = None,
) -> XlaComparison:
    """Compare XLA's module with our plan for the program that XLA received.

    `places` are lines of the text of the program, for operations without a source line. `pipeline`
    makes the plan; the default is that of `explain`.
    """
    mesh = next(mesh for mesh in module_of(program).meshes if not mesh.is_maximal)
    xla = xla_communication(module, mesh.sizes)
    steps = pipeline_of(program, pipeline)
    decided = steps.decide(module_of(program))
    partitioned = Pipeline(steps.partitioning)(decided)
    planned = communication(partitioned, places=places)
    combined = sum_collectives(communication(CombineCollectives()(partitioned)).rows)
    return XlaComparison(xla, planned, combined, tuple(_compare_lines(xla, planned, decided)))


def _compare_lines(
    xla: XlaCommunication, planned: Communication, decided: Module
) -> Sequence[LineComparison]:
    ours, theirs = _by_line(planned.rows), _by_line(xla.communication.rows)
    causes = dict(zip(xla.communication.rows, xla.causes, strict=True))
    constraints = _constraints_by_line(decided)
    lines = []
    for line in dict.fromkeys([*theirs, *ours]):
        of_xla, of_plan = theirs.get(line, []), ours.get(line, [])
        extra = sum_collectives(of_xla).sent - sum_collectives(of_plan).sent
        shown = constraints.get(line, [])[:MAX_CONSTRAINTS] if extra > 0 else []
        lines.append(
            LineComparison(
                line,
                _by_kind(of_xla),
                _by_kind(of_plan),
                extra,
                tuple(shown),
                tuple((row, causes[row]) for row in of_xla),
            )
        )
    return sorted(lines, key=lambda each: -each.extra)


def _by_line(rows: Iterable[Collective]) -> dict[str, list[Collective]]:
    result: dict[str, list[Collective]] = {}
    for row in rows:
        result.setdefault(_line_text(row.loc), []).append(row)
    return result


def _by_kind(rows: Iterable[Collective]) -> tuple[tuple[str, CommunicationTotal], ...]:
    return tuple(sum_by(rows, lambda row: row.kind).items())


def _line_text(loc: Loc | None) -> str:
    return "" if loc is None else line_text(loc.file, loc.line)


def line_text(file: str, line: int) -> str:
    """Return a line with its cell of a notebook, with its file relative to the current folder, or
    else with an absolute path, because XLA and JAX show the same file differently."""
    return str(_relative_to_folder(Loc(file, line, 1)))


def _relative_to_folder(loc: Loc | None) -> Loc | None:
    return None if loc is None else replace(loc, file=_shown_file(loc))


def _shown_file(loc: Loc) -> str:
    folder, file = Path.cwd(), Path(name_cell(loc.file))
    return str(file.relative_to(folder) if file.is_relative_to(folder) else file)


def _constraints_by_line(module: Module) -> dict[str, list[Constraint]]:
    """Return the constraints that state the shardings of the values of each line."""
    constraints: dict[str, dict[str, Constraint]] = {}

    def visit(block: Block) -> None:
        for op in block.ops:
            for value in op.results:
                spec = _spec_text(value.sharding, module)
                if op.loc is not None and spec is not None:
                    constraint = Constraint(value.name, _type_text(value), spec)
                    constraints.setdefault(_line_text(op.loc), {}).setdefault(
                        constraint.type, constraint
                    )
            for inner in op.blocks:
                visit(inner)

    for function in module.functions:
        visit(function.body)
    return {line: list(each.values()) for line, each in constraints.items()}


def _type_text(value: Value) -> str:
    assert value.sharding is not None
    sizes = []
    for size, axes in zip(value.type.shape, value.sharding.axes, strict=True):
        names = [axis.name for axis in axes]
        over = names[0] if len(names) == 1 else f"({', '.join(names)})"
        sizes.append(f"{size}@{over}" if names else str(size))
    return f"{value.type.dtype}[{', '.join(sizes)}]"


def _spec_text(sharding: Sharding | None, module: Module) -> str | None:
    """Return a sharding as a `PartitionSpec`; `None` if it has no axes, or parts of an axis."""
    if sharding is None or not any(sharding.axes):
        return None
    mesh = next(mesh for mesh in module.meshes if mesh.name == sharding.mesh)
    parts = []
    for axes in sharding.axes:
        if not all(axis.is_full(mesh) for axis in axes):
            return None
        names = [repr(axis.name) for axis in axes]
        parts.append(names[0] if len(names) == 1 else f"({', '.join(names)})" if names else "None")
    return f"P({', '.join(parts)})"
