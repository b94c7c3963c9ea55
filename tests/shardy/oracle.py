"""Results of the Shardy in jaxlib's wheel for a module, in terms of our IR.

A module is printed as StableHLO, and the location of every operation has the operation's number as
its line. The passes of the wheel keep locations, also of copies, which identifies the operations in
the result.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy
from jaxlib.mlir.passmanager import PassManager

from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Loc, Module, Op, Value
from shardir.ir.sharding import Axis, DimSharding, Sharding
from shardir.op_rules.factors import Factor, FactorKind, FactorRule
from shardir.passes.propagation.finish import without_unit_axes
from shardir.passes.propagation.manual_computations import remove_manual_axes
from shardir.stablehlo.printer import show
from tests.shardy.random_programs.calls import text_of

PREPARE = (
    "sdy-lift-inlined-meshes,sdy-remove-size-one-axes,sdy-propagate-sharding-from-func-to-call,"
    "sdy-constant-or-scalar-splitter,sdy-manual-axes-cleanup,sdy-add-data-flow-edges,"
    "sdy-flatten-call-graph,symbol-dce,"
    "sdy-import-func-calls{add-data-flow-edges-on-named-computations=true},symbol-dce,"
    "sdy-apply-sharding-constraints,sdy-sharding-group-import"
)
LEVELS = {
    "basic": "sdy-basic-propagate",
    "aggressive": "sdy-aggressive-propagate",
    "op-priority": "sdy-op-priority-propagate",
    "user-priority": "sdy-user-priority-propagate",
}
FINISH = "func.func(sdy-sink-data-flow-edges)"
CLOSE = (
    "sdy-update-non-divisible-input-output-shardings,"
    "sdy-remove-sub-axes-in-input-output-shardings,sdy-close-shardings"
)

Seen = tuple[Sharding | None, ...]
_NUMBER = re.compile(r'"program":(\d+)')


class NoAnswer(Exception):
    """Shardy produced a module that its own verifier rejects, or compared parts of an axis by their
    size.
    """


@dataclass
class Decisions:
    """The shardings of parameters, of results, and of the tensors of each numbered operation.

    A sharding without content is `None`. An operation that was copied has several entries.
    """

    params: Seen
    results: Seen
    ops: dict[int, Counter[tuple[Seen, Seen]]]

    def axes(self) -> set[Axis]:
        """Return all axes and sub-axes that shard a tensor."""
        tensors = [*self.params, *self.results]
        for seen in self.ops.values():
            tensors += (sharding for both in seen for side in both for sharding in side)
        return {axis for sharding in tensors if sharding for axis in sharding.used_axes()}


@cache
def context() -> Any:
    return mlir.make_ir_context()


def number_ops(module: Module) -> Module:
    """Return the module with the number of every operation in its location."""
    count = 0

    def block(old: Block) -> Block:
        return replace(old, ops=tuple(map(op, old.ops)))

    def op(old: Op) -> Op:
        nonlocal count
        count += 1
        loc = Loc("program", count, 0)
        return replace(old, loc=loc, blocks=tuple(map(block, old.blocks)))

    functions = tuple(replace(f, body=block(f.body)) for f in module.functions)
    return replace(module, functions=functions)


def shardy(module: Module, level: str, *, close: bool, conservative: bool = False) -> Decisions:
    """Return Shardy's decisions; `module` is numbered."""
    propagate = LEVELS[level] + ("{conservative-propagation=true}" if conservative else "")
    passes = ",".join([PREPARE, propagate, FINISH, *([CLOSE] if close else [])])
    return run(module, passes)


def run(module: Module, passes: str) -> Decisions:
    with context(), ir.Location.unknown():
        parsed = ir.Module.parse(text_of(module))
        try:
            PassManager.parse(f"builtin.module({passes})").run(parsed.operation)
        except ir.MLIRError as error:
            raise NoAnswer(str(error)) from None
        return _Reader(module).read(parsed)


class _Reader:
    """Reads the shardings of an MLIR module."""

    def __init__(self, module: Module) -> None:
        self.meshes = firsts(module)
        self.ops: dict[int, Counter[tuple[Seen, Seen]]] = {}
        self.of: dict[Any, Sharding | None] = {}

    def read(self, parsed: Any) -> Decisions:
        """Return the decisions in `main`; the full pipeline puts called functions beside it."""
        (function,) = (
            op
            for op in parsed.body.operations
            if op.operation.name == "func.func"
            and ir.StringAttr(op.attributes["sym_name"]).value == "main"
        )
        entry = function.regions[0].blocks[0]
        params = self.attributes(function, "arg_attrs", len(entry.arguments))
        results = self.attributes(function, "res_attrs", len(function.type.results))
        self.of.update(zip(entry.arguments, params, strict=True))
        self.block(entry)
        return Decisions(params, results, self.ops)

    def attributes(self, function: Any, name: str, count: int) -> Seen:
        if name not in function.attributes:
            return (None,) * count
        attrs = [dict(self.items(each)) for each in function.attributes[name]]
        return tuple(self.sharding(each.get("sdy.sharding")) for each in attrs)

    @staticmethod
    def items(attrs: Any) -> Any:
        for each in ir.DictAttr(attrs):
            yield (each.name, each.attr) if hasattr(each, "attr") else (each, attrs[each])

    def block(self, block: Any) -> None:
        for op in block.operations:
            op = op.operation
            results = self.results(op)
            self.of.update(zip(op.results, results, strict=True))
            for region in op.regions:
                for inner in region.blocks:
                    known = self.carried(op, results)
                    for i, argument in enumerate(inner.arguments):
                        self.of[argument] = known[i] if i < len(known) else None
                    self.block(inner)
            found = _NUMBER.search(str(op.location))
            # A sharding group has no results, and Shardy removes duplicates.
            if found and op.name != "sdy.sharding_group":
                operands = tuple(
                    self.of[v] for v in op.operands if ir.RankedTensorType(v.type).rank
                )
                seen = self.ops.setdefault(int(found[1]), Counter())
                seen[operands, results] += 1

    def carried(self, op: Any, results: Seen) -> Seen:
        """Return the shardings of the parameters of an operation's blocks."""
        if op.name == "stablehlo.while":
            return results
        if op.name == "sdy.named_computation":
            return self.per_value(op, "in_shardings", len(op.operands))
        if op.name != "sdy.manual_computation":
            return ()
        manual = ir.Attribute(op.attributes["manual_axes"])
        names = re.findall(r'"([^"]*)"', str(manual))
        per_value = sdy.TensorShardingPerValueAttr(op.attributes["in_shardings"])
        return tuple(
            none_if_empty(
                inside and remove_manual_axes(inside, tuple(Axis(name, 1, 1) for name in names))
            )
            for inside in (self.sharding(each) for each in per_value.shardings)
        )

    def results(self, op: Any) -> Seen:
        if op.name in ("sdy.manual_computation", "sdy.named_computation"):
            return self.per_value(op, "out_shardings", len(op.results))
        if op.name in ("sdy.sharding_constraint", "sdy.reshard"):
            return (self.sharding(op.attributes["sharding"]),)
        return self.per_value(op, "sdy.sharding", len(op.results))

    def per_value(self, op: Any, name: str, count: int) -> Seen:
        if name not in op.attributes:
            return (None,) * count
        per_value = sdy.TensorShardingPerValueAttr(op.attributes[name])
        return tuple(self.sharding(each) for each in per_value.shardings)

    def sharding(self, attr: Any) -> Sharding | None:
        if attr is None:
            return None
        read = sdy.TensorShardingAttr(attr)
        mesh = self.meshes[str(read.mesh_or_ref).removeprefix("@").strip('"')]
        if mesh.is_maximal:
            return on_one_device(mesh)
        dims = tuple(
            self.dim(sdy.DimensionShardingAttr(each), mesh) for each in read.dimension_shardings
        )
        sharding = Sharding(
            mesh.name,
            dims,
            tuple(self.axis(each, mesh) for each in read.replicated_axes),
            tuple(self.axis(each, mesh) for each in read.unreduced_axes),
        )
        return none_if_empty(without_unit_axes(sharding))

    def dim(self, attr: Any, mesh: Mesh) -> DimSharding:
        axes = tuple(self.axis(axis, mesh) for axis in attr.axes)
        return DimSharding(axes, not attr.is_closed, attr.priority)

    @staticmethod
    def axis(attr: Any, mesh: Mesh) -> Axis:
        ref = sdy.AxisRefAttr(attr)
        if ref.sub_axis_info is None:
            return Axis.full(ref.name, mesh)
        part = sdy.SubAxisInfoAttr(ref.sub_axis_info)
        return Axis(ref.name, part.pre_size, part.size)


def firsts(module: Module) -> dict[str, Mesh]:
    """Return for each mesh the first mesh that is equal except for its name; Shardy keeps only
    those.
    """
    first: dict[object, Mesh] = {}
    return {m.name: first.setdefault((m.axes, m.device_ids), m) for m in module.meshes}


def none_if_empty(sharding: Sharding | None) -> Sharding | None:
    """Return `None` for a sharding without content: all dimensions open and unsharded."""
    if sharding is None or sharding == Sharding.open(sharding.mesh, len(sharding.dims)):
        return None
    return sharding


def on_one_device(mesh: Mesh) -> Sharding:
    """Return a value that equals only a tensor that is unsharded on one device of a mesh.

    Shardy writes that as a sharding without dimensions, and our IR as one of replicated dimensions.
    """
    return Sharding(mesh.name, (DimSharding((Axis("device", 1, 1),), False),))


def ours(module: Module) -> Decisions:
    """Return the shardings of our module in the same form as Shardy's."""
    ops: dict[int, Counter[tuple[Seen, Seen]]] = {}

    meshes = firsts(module)

    def read(sharding: Sharding | None) -> Sharding | None:
        if sharding is None:
            return None
        mesh = meshes[sharding.mesh]
        if mesh.is_maximal:
            return on_one_device(mesh)
        return none_if_empty(replace(without_unit_axes(sharding), mesh=mesh.name))

    def of(values: tuple[Value, ...]) -> Seen:
        return tuple(read(value.sharding) for value in values)

    function: Function = module.main
    for op in function.body.walk():
        if op.name == "sharding_group" or op.loc is None:
            continue
        operands = of(tuple(v for v in op.operands if v.type.rank))
        ops.setdefault(op.loc.line, Counter())[operands, of(op.results)] += 1
    return Decisions(of(function.body.params), tuple(map(read, function.result_shardings)), ops)


def whole_is_nothing(decisions: Decisions) -> Decisions:
    """Return decisions in which a replicated tensor has no sharding.

    Our IR states that a tensor is replicated, and Shardy does not.
    """

    def cut(seen: Seen) -> Seen:
        return tuple(s if s and (any(s.axes) or s.unreduced) else None for s in seen)

    ops: dict[int, Counter[tuple[Seen, Seen]]] = {}
    for number, entries in decisions.ops.items():
        counts = ops[number] = Counter()
        for (operands, results), count in entries.items():
            counts[cut(operands), cut(results)] += count
    return Decisions(cut(decisions.params), cut(decisions.results), ops)


def rule_of(module: Module) -> FactorRule | None:
    """Return Shardy's rule of the first operation, if it is one StableHLO operation with a rule."""
    with context(), ir.Location.unknown():
        parsed = ir.Module.parse(show(module, locations=True))
        passes = "builtin.module(func.func(sdy-populate-op-sharding-rules))"
        PassManager.parse(passes).run(parsed.operation)
        (function,) = parsed.body.operations
        block = function.regions[0].blocks[0]
        made = [op.operation for op in block.operations if "constant" not in op.operation.name]
        if len(made) != 2 or "sdy.sharding_rule" not in made[0].attributes:
            return None
        rule = sdy.OpShardingRuleAttr(made[0].attributes["sdy.sharding_rule"])
        factors = [Factor(size) for size in rule.factor_sizes]
        for kind, numbers in (
            (FactorKind.REDUCE, rule.reduction_factors),
            (FactorKind.REPLICATE, rule.need_replication_factors),
            (FactorKind.PERMUTE, rule.permutation_factors),
        ):
            for i in numbers:
                factors[i] = replace(factors[i], kind=kind)
        for i in rule.blocked_propagation_factors:
            factors[i] = replace(factors[i], blocked=True)
        sides = [
            tuple(
                tuple(
                    tuple(sdy.DimMappingAttr(dim).factor_indices)
                    for dim in sdy.TensorMappingAttr(tensor).dim_mappings
                )
                for tensor in side
            )
            for side in (rule.operand_mappings, rule.result_mappings)
        ]
        return FactorRule(sides[0], sides[1], tuple(factors))
