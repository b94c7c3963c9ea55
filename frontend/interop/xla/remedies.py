"""Annotations that make XLA send fewer bytes, each verified by compilation.

`find_remedies` inserts sharding constraints on the values of a line into the program, compiles it
with XLA, and keeps a constraint if XLA then sends fewer bytes. Candidates are the sharding of
shardir's plan, and every other sharding over the axes of the mesh. For operations that XLA
replicates and the plan computes without communication, the remedy is a `shard_map`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, permutations

from shardir.cost.communication import sum_collectives
from shardir.frontend.interop.xla.compilation import (
    AddedConstraint,
    Cost,
    LoweredProgram,
    ProgramValue,
    Spec,
)
from shardir.frontend.interop.xla.source_expressions import (
    SourceRange,
    assigned_name,
    expression_text,
    free_names,
    replace_name,
)
from shardir.ir.location import Loc
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Module, Value
from shardir.passes.explain.xla.xla_causes import XlaCauseKind
from shardir.passes.explain.xla.xla_communication import (
    LineComparison,
    Remedy,
    XlaComparison,
    line_text,
)

MAX_CONSTRAINTS_PER_LINE = 2
"""The maximum number of constraints that one remedy adds to a line."""
MAX_FLOPS_RATIO = 1.25
"""The maximum ratio of floating-point operations after and before a remedy: a remedy does not
replace communication by replicated computation."""
MIN_SAVED_SHARE = 0.05
"""The minimum share of the sent bytes of a line that a remedy saves."""
SUFFICIENT_SAVED_SHARE = 0.8
"""The share of the sent bytes of a line that ends the search if a remedy saves it."""
LOCAL_OPERATIONS = frozenset({
    "cholesky", "conv_general_dilated", "custom_call", "eig", "eigh", "ffi_call", "fft",
    "geqrf", "householder_product", "lu", "pure_callback", "qr", "schur", "sort", "svd", "top_k",
    "triangular_solve", "tridiagonal", "tridiagonal_solve",
})  # fmt: skip
"""Primitives whose program on a shard is the same operation on the shard, if the plan computes
them without communication."""


SUMS = frozenset({"all-reduce", "reduce-scatter"})
_GLOBAL_SIZE = re.compile(r"\b(?:arange|full|iota|linspace|ones|reshape|shape|tri|zeros)\b")
"""Names in expressions that may depend on the number of elements of the whole array."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Constraints on values, the expression in the source that they change, and the changed one."""

    constraints: tuple[AddedConstraint, ...]
    old: str
    new: str


@dataclass
class RemedySearch:
    """The search for remedies of one program."""

    lowered: LoweredProgram
    comparison: XlaComparison
    plan: Module
    """The program after propagation."""
    compilations: int
    """The number of compilations that remain."""
    shardings: Mapping[tuple[str, int, int], list[Value]] = field(init=False)
    mesh: Mesh = field(init=False)

    def __post_init__(self) -> None:
        self.mesh = next(mesh for mesh in self.plan.meshes if not mesh.is_maximal)
        self.shardings = _values_by_place(self.plan)

    def find(self) -> dict[str, tuple[Remedy, ...]]:
        """Return the remedies by line; none if no change was found."""
        remedies = {}
        for line in sorted(self.comparison.lines, key=lambda each: -_sent_by_xla(each)):
            kinds = {cause.kind for _, cause in line.collectives}
            if line.line and kinds - {XlaCauseKind.REQUEST}:
                remedies[line.line] = self._shard_map(line) or self._constraints(line)
        return remedies

    def _values_of(self, line: LineComparison) -> list[ProgramValue]:
        return [
            value
            for value in self.lowered.values
            if value.shape and line_text(value.place.file, value.place.line) == line.line
        ]

    def _values_after(self, line: LineComparison) -> list[ProgramValue]:
        """Return the results of operations on other lines that use a result of a line."""
        users = {
            value.operation
            for value in self.lowered.values
            if value.defined is not None
            and line_text(value.defined.file, value.defined.line) == line.line
            and line_text(value.place.file, value.place.line) != line.line
        }
        return [
            value
            for value in self.lowered.values
            if value.is_result and value.shape and value.operation in users
        ]

    def _constraints(self, line: LineComparison) -> tuple[Remedy, ...]:
        """Return the constraints that save the most bytes of a line."""
        base = self.lowered.cost([])
        assert base is not None
        chosen: list[_Candidate] = []
        best = base
        needed = _sent_by_xla(line) * MIN_SAVED_SHARE
        sufficient = _sent_by_xla(line) * SUFFICIENT_SAVED_SHARE
        for _ in range(MAX_CONSTRAINTS_PER_LINE):
            found = None
            used = {each.value for one in chosen for each in one.constraints}
            for candidate in self._candidates(line):
                if any(each.value in used for each in candidate.constraints):
                    continue
                constraints = [each for one in (*chosen, candidate) for each in one.constraints]
                cost = self._cost(constraints)
                if cost is None or cost.sent >= best.sent - needed:
                    continue
                # Selections that a reshard inserts count as operations, too.
                if cost.flops <= base.flops * MAX_FLOPS_RATIO + base.sent - cost.sent:
                    found, best = candidate, cost
                if base.sent - best.sent >= sufficient:
                    break
            if found is None or any(one.old == found.old for one in chosen):
                break
            chosen.append(found)
            if base.sent - best.sent >= sufficient:
                break
        return tuple(
            Remedy(_loc(one.constraints[0].value.place), one.old, one.new, best.sent)
            for one in chosen
        )

    def _cost(self, constraints: Sequence[AddedConstraint]) -> Cost | None:
        if tuple(constraints) not in self.lowered.compiled:
            if self.compilations <= 0:
                return None
            self.compilations -= 1
        return self.lowered.cost(constraints)

    def _candidates(self, line: LineComparison) -> Iterator[_Candidate]:
        """Yield constraints with the expression of the source and its replacement.

        Those of the plan come first, then one for each value in turn, because the number of
        compilations is limited.
        """
        queues = []
        seen = set()
        for value in (*self._values_of(line), *self._values_after(line)):
            text = expression_text(value.place)
            name = None if value.is_result else _operand_name(value)
            key = (value.place, name, value.is_result)
            if text is None or (name is None and not value.is_result) or key in seen:
                continue
            if value.is_result and self._is_one_of_several(value):
                continue
            seen.add(key)
            planned = self._planned_spec(value)
            specs = dict.fromkeys(chain([planned] if planned else [], self._specs(value.shape)))
            if value.parameter is not None:
                specs.pop(planned or ((),) * len(value.shape), None)  # Its annotation states it.
            queues.append([(value, spec, text, name) for spec in specs])
        for rank in range(max(map(len, queues), default=0)):
            for queue in queues:
                if rank < len(queue):
                    value, spec, text, name = queue[rank]
                    replaced = self._replacement(text, name, spec)
                    if replaced is not None:
                        constraints = [
                            AddedConstraint(each, spec) for each in self._uses_of(value, name)
                        ]
                        yield _Candidate(tuple(constraints), text, replaced)

    def _uses_of(self, value: ProgramValue, name: str | None) -> list[ProgramValue]:
        """Return the values that a constraint on a value in the source constrains: for an operand,
        all operands with its name in the expression.
        """
        return [value] + [
            each
            for each in self.lowered.values
            if not (value.is_result or each.is_result or each.is_derivative)
            and each != value
            and each.shape == value.shape
            and _contains(value.place, each.place)
            and _operand_name(each) == name
        ]

    def _is_one_of_several(self, value: ProgramValue) -> bool:
        """Return whether a value is one of several results of an expression, or a derivative."""
        if value.is_derivative:
            return True
        others = {
            (each.operation, each.index)
            for each in self.lowered.values
            if each.is_result and each.place == value.place and not each.is_derivative
        }
        return len(others) > 1

    def _replacement(self, text: str, name: str | None, spec: Spec) -> str | None:
        call = "jax.lax.with_sharding_constraint({}, {})"
        if name is None:
            return call.format(text, spec_text(spec))
        return replace_name(text, name, call.format(name, spec_text(spec)))

    def _specs(self, shape: Sequence[int]) -> Iterator[Spec]:
        """Yield the shardings of an array over the axes of the mesh."""
        sizes = self.mesh.sizes
        axes = [axis for axis, size in sizes.items() if size > 1]
        for count in (len(axes), *range(1, len(axes))):
            for chosen in permutations(axes, count):
                for dim, size in enumerate(shape):
                    parts = 1
                    for axis in chosen:
                        parts *= sizes[axis]
                    if size % parts == 0 and size > 1:
                        yield tuple(chosen if dim == each else () for each in range(len(shape)))
        if len(axes) == 2:
            for first, second in permutations(range(len(shape)), 2):
                if shape[first] % sizes[axes[0]] == 0 and shape[second] % sizes[axes[1]] == 0:
                    yield tuple(
                        (axes[0],) if dim == first else (axes[1],) if dim == second else ()
                        for dim in range(len(shape))
                    )
        yield ((),) * len(shape)

    def _planned_spec(self, value: ProgramValue) -> Spec | None:
        """Return the sharding of the plan; `None` if it has no axes or only parts of axes."""
        planned = self._planned_value(value)
        if planned is None or planned.sharding is None or not any(planned.sharding.axes):
            return None
        if not all(axis.is_full(self.mesh) for axes in planned.sharding.axes for axis in axes):
            return None
        return tuple(tuple(axis.name for axis in axes) for axes in planned.sharding.axes)

    def _planned_value(self, value: ProgramValue) -> Value | None:
        if value.parameter is not None:
            params = self.plan.main.body.params
            return params[value.parameter] if value.parameter < len(params) else None
        place = value.place if value.is_result else value.defined
        if place is None:
            return None
        found = self.shardings.get((place.file, place.line, place.column), [])
        return next((each for each in reversed(found) if each.type.shape == value.shape), None)

    def _shard_map(self, line: LineComparison) -> tuple[Remedy, ...]:
        """Return the partition by hand of an operation that XLA replicates."""
        replicated = {
            cause.operation
            for _, cause in line.collectives
            if cause.kind is not XlaCauseKind.PARTIAL_SUMS
        }
        # The derivative of a shard_map sums over the devices itself.
        planned_kinds = {kind for kind, total in line.planned if total.sent}
        if not replicated or not replicated <= LOCAL_OPERATIONS or planned_kinds - SUMS:
            return ()
        values = self._values_of(line)
        results = [value for value in values if value.is_result]
        results.sort(key=lambda value: (value.place.column, -value.place.end_column))
        for result in results:
            text = expression_text(result.place)
            planned = self._planned_spec(result)
            if text is None or planned is None or self._is_one_of_several(result):
                continue
            found = {
                name: self._spec_of_name(name, result.place, values) for name in free_names(text)
            }
            # Variables that are no operands are parameters of the operation.
            names = [name for name, spec in found.items() if spec is not None]
            specs = [found[name] for name in names]
            operands = self._outer_operands(result.place)
            if not names or not operands <= {*names} or _GLOBAL_SIZE.search(text):
                continue
            inputs = ", ".join(spec_text(spec) for spec in specs if spec is not None)
            inputs = f"({inputs})" if len(specs) > 1 else inputs
            arguments = ", ".join(names)
            new = (
                f"jax.shard_map(lambda {arguments}: {text}, mesh=mesh, in_specs={inputs}, "
                f"out_specs={spec_text(planned)})({arguments})"
            )
            return (Remedy(_loc(result.place), text, new, None),)
        return ()

    def _outer_operands(self, place: SourceRange) -> set[str | None]:
        """Return the variables of the arrays that an expression reads; `None` for others."""
        return {
            _operand_name(value)
            for value in self.lowered.values
            if not (value.is_result or value.is_derivative)
            and value.shape
            and _contains(place, value.place)
            and (value.defined is None or not _contains(place, value.defined))
        }

    def _spec_of_name(
        self, name: str, place: SourceRange, values: Sequence[ProgramValue]
    ) -> Spec | None:
        for value in values:
            if (
                not value.is_result
                and _contains(place, value.place)
                and _operand_name(value) == name
                and self._planned_value(value) is not None
            ):
                return self._planned_spec(value) or ((),) * len(value.shape)
        return None


def find_remedies(
    lowered: LoweredProgram, comparison: XlaComparison, plan: Module, compilations: int
) -> dict[str, tuple[Remedy, ...]]:
    """Return the remedies by line.

    `plan` is the program after propagation, `compilations` the maximum number of compilations.
    """
    return RemedySearch(lowered, comparison, plan, compilations).find()


def spec_text(spec: Spec) -> str:
    """Return a sharding as a `PartitionSpec` without trailing `None`s."""
    parts = []
    for axes in spec:
        names = [repr(axis) for axis in axes]
        parts.append(names[0] if len(names) == 1 else f"({', '.join(names)})" if names else "None")
    while parts and parts[-1] == "None":
        parts.pop()
    return f"P({', '.join(parts)})"


def _operand_name(value: ProgramValue) -> str | None:
    """Return the variable of an operand in the source."""
    return value.name or (assigned_name(value.defined) if value.defined else None)


def _contains(outer: SourceRange, inner: SourceRange) -> bool:
    start, end = (outer.line, outer.column), (outer.end_line, outer.end_column)
    return (
        outer.file == inner.file
        and start <= (inner.line, inner.column)
        and (inner.end_line, inner.end_column) <= end
    )


def _sent_by_xla(line: LineComparison) -> int:
    return sum_collectives(row for row, _ in line.collectives).sent


def _loc(place: SourceRange) -> Loc:
    return Loc(place.file, place.line, place.column + 1)


def _values_by_place(module: Module) -> dict[tuple[str, int, int], list[Value]]:
    """Return the values of a module by file, line and column."""
    found: dict[tuple[str, int, int], list[Value]] = {}

    def visit(block: Block) -> None:
        for op in block.ops:
            if op.loc is not None:
                place = (op.loc.file, op.loc.line, op.loc.column)
                found.setdefault(place, []).extend(op.results)
            for inner in op.blocks:
                visit(inner)

    for function in module.functions:
        visit(function.body)
    return found
