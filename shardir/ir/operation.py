"""Operations: their declarations, and their applications to values in blocks.

Values and operations compare by identity, so they can be dictionary keys: an analysis is a
`dict[Value, ...]` beside the module, never a field of it.

The blocks of an operation (such as the body of a loop) may use values of the enclosing blocks; such
captured values are loop-invariant. Each value has one definition in its function (SSA form).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from shardir.display.representation import Printed
from shardir.ir.arithmetic import ORDINARY, Arithmetic, ArithmeticRule
from shardir.ir.attributes import Attributes
from shardir.ir.dtypes import NumpyArray
from shardir.ir.location import Loc
from shardir.ir.rule_checks import check_declaration, with_checks
from shardir.ir.rules import (
    BatchRule,
    CotangentRule,
    ExchangeRule,
    FactorChoice,
    FactorRuleOf,
    LinearityRule,
    LoweringRule,
    ReductionRule,
    ReferenceRule,
    TypeRule,
)
from shardir.ir.sharding import Axis, Sharding
from shardir.ir.types import TensorType
from shardir.op_rules.factors import FactorRule
from shardir.plugins.entry_points import OWN_ORIGIN, is_extension
from shardir.plugins.registry import Registry

Varying = frozenset[Axis]
"""The manual axes along which a value may differ between devices; see `shardir.op_rules.vma`."""

NOT_VARYING: Varying = frozenset()


class Vma(NamedTuple):
    """The axes along which each operand must vary, and along which all results vary."""

    operands: tuple[Varying, ...]
    results: Varying


class VmaRule(Protocol):
    """(axes along which each operand varies, attributes) -> `Vma`."""

    def __call__(self, operands: Sequence[Varying], /, *_: Any, **attributes: Any) -> Vma: ...


class Symbol(str):
    """A bare word in the text, such as an element type or a reduction."""

    __slots__ = ()


class Dense:
    """An array attribute: immutable, compared and hashed by its bytes, shape and dtype."""

    __slots__ = ("_hash", "array")

    def __init__(self, array: npt.ArrayLike) -> None:
        frozen = np.array(array, order="C")
        frozen.setflags(write=False)
        self.array: NumpyArray = frozen
        self._hash = hash((frozen.shape, frozen.dtype.str, frozen.tobytes()))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Dense)
            and self.array.dtype == other.array.dtype
            and self.array.shape == other.array.shape
            and self.array.tobytes() == other.array.tobytes()
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Dense({self.array!r})"


Attr = Any  # bool | int | float | complex | str | Symbol | Axis | Dense | tuple[Attr, ...]
Result = Any  # TensorType of the only result, or a tuple of them
AttributeClass = type[Attributes]


Cotangents = tuple["Value | None", ...]
"""The cotangents of several values; `None` is zero."""
Tangents = Sequence["Value | None"]
TangentRule = Callable[[Any, "Op", Tangents], Tangents | None]
"""The type of a tangent rule:

(builder, operation, tangents of its operands) -> tangents of its results. `None` is zero; `None` as
the whole result means that the rule does not cover this case.
"""


SelectionRule = Callable[["Op", str], tuple[tuple[int, ...], ...]]
"""The type of a rule of an operation that selects elements:

(operation, `max` or `min`) -> the groups of operands whose partial values that reduction may
combine after the operation. See `shardir.op_rules.linearity`.
"""


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The `partition` rule of an operation.

    `lower(builder, local, operands..., attributes)` appends the per-device operations and returns
    the local result, or a tuple of them; `local` is a `LocalOp` and the operands are local values.
    It is called if any factor is sharded. Without `lower`, the operation itself runs on local
    types.

    `shardable(rule, operand types..., result, attributes)` lists the factors that may be sharded;
    the default is `default_shardable_factors`. Other factors are gathered before the operation.

    `reduction(attributes)` names the reduction of results that are partial over sharded reduced
    factors; the default is the rule's `reduction`, and without either `lower` leaves no partial
    results.

    `uneven(rule, operand types..., result, attributes)` lists the factors that may be sharded
    unevenly: shorter shards have padding with unspecified values. The default is the pass-through
    factors and, if partial results can be combined, the reduced ones; never factors that share a
    dimension.

    `masked` are the operands in which padding along sharded reduced factors is replaced by the
    reduction's identity before the operation runs; the default is all.

    `factors(operand types..., result, attributes)` is the factor rule that partitioning uses if it
    differs from that of propagation; its signature is that of `OpSpec.factors`.
    """

    lower: LoweringRule["Value"] | None = None
    shardable: FactorChoice | None = None
    reduction: ReductionRule | None = None
    uneven: FactorChoice | None = None
    masked: tuple[int, ...] | None = None
    factors: FactorRuleOf | None = None


@dataclass(frozen=True, slots=True, eq=False)
class OpSpec:
    """The target-independent declaration of an operation.

    All rules have one calling convention: operands by position, attributes by keyword, and
    `result`, the type stated for the result (`None` while an operation is built; a tuple for
    several results). If the declaration names the class of its attributes, rules receive one object
    of it as `attributes`, otherwise each attribute as an argument. No attribute repeats a shape
    that the result type states, so the same attributes are valid for global shapes and for the
    local shapes after partitioning.
    """

    name: str
    type: TypeRule
    """The result types; raises `TypeError` with a sentence that continues the operation's name."""
    attributes: AttributeClass | None = None
    """The class of the attributes; `None`: the parameters of the type rule state them."""
    factors: FactorRuleOf | None = None
    """The factor rule; `None`: cannot be sharded."""
    reference: ReferenceRule | None = None
    """The reference semantics."""
    exchange: ExchangeRule | None = None
    """The reference semantics of a per-device operation that depends on the device or on other
    devices.
    """
    vjp: CotangentRule["Value"] | None = None
    """The cotangents of the operands."""
    jvp: TangentRule | None = None
    """The tangents of the results given those of the operands, where that is simpler than the
    derivation from the vjp. See `shardir.op_rules.tangents`.
    """
    batch: BatchRule["Value"] | None = None
    """The rule that batches the operation over a leading dimension; elementwise operations need no
    rule.

    See `shardir.op_rules.batching`.
    """
    partition: Partitioning | None = None
    """Partitioning rules beyond the default derivation from factors. See
    `shardir.op_rules.partitioning`."""
    linear: tuple[tuple[int, ...], ...] | LinearityRule | None = None
    """Groups of operands in which the operation is jointly linear, or a rule that returns them,
    where its jvp does not imply them; see `shardir.op_rules.linearity`.
    """
    divides: bool = False
    """True for an operation that is linear in numbers and not in integers, whose quotients it
    rounds."""
    selection: SelectionRule | None = None
    """The operands whose partial maxima or minima may be combined after the operation; `None`:
    none. See `shardir.op_rules.linearity`.
    """
    holomorphic: bool = True
    """False for an elementwise operation that has no complex derivative and is not linear."""
    arithmetic: Arithmetic | ArithmeticRule | None = ORDINARY
    """The arithmetic on elements, or a rule that returns it; `None`: the operation only moves
    elements or, as `convert`, is defined for each dtype. See `shardir.op_rules.widening`.
    """
    vma: VmaRule | None = None
    """The manual axes along which operands must vary and results vary; `None`: all vary along the
    same axes. See `shardir.op_rules.vma`.
    """
    edges: Callable[["Op"], tuple["DataFlowEdge", ...]] | None = None
    """The data flow edges into and out of its blocks (only operations with blocks)."""
    elementwise: bool = False
    """True if each element of the result depends only on the same element of the operands."""
    collective: bool = False
    """True if the devices of a mesh must execute the operation together."""
    spmd: bool = False
    """True if the operation is valid only in a per-device program."""
    effect: bool = False
    """True if the operation has side effects: it executes exactly once even if its results are
    unused.
    """
    blocks: int = 0
    """The number of blocks; -1: any number, at least one."""
    is_loop_nest: bool = False
    """True if the block is one loop nest: it uses no values of the blocks around it, and its
    intermediate values are not stored in memory.
    """
    inlined_by: str = ""
    """The name of the pass that replaces the operation by the operations of its block, for an
    operation that programs contain before other passes run.
    """

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __reduce__(self) -> tuple[Callable[[str], "OpSpec"], tuple[str]]:
        """Return the declaration by its name: copies of programs must contain this object, because
        passes and backends compare declarations by identity."""
        return _declared_op, (self.name,)

    def rule_arguments(self, attrs: Mapping[str, Attr]) -> Mapping[str, Attr]:
        """Return the keyword arguments by which rules receive these attributes."""
        return attrs if self.attributes is None else {"attributes": self.attributes(**attrs)}


OPS: Registry[OpSpec] = Registry(
    "operation",
    "shardir.operations",
    expected="a result of shardir.ir.operation.define_op",
    accepts=lambda entry: isinstance(entry, OpSpec),
    name_of=lambda spec: spec.name,
    package="shardir.ops",
    are_registered_by_definition=True,
)
"""The operations by name. Installed packages and loaded files add theirs (`shardir.plugins`)."""


def _declared_op(name: str) -> OpSpec:
    return OPS.lookup(name, LookupError)


_RULE_KINDS = {field.name: field.type for field in fields(OpSpec) if field.name != "name"}


def define_op(name: str, **rules: Any) -> OpSpec:
    """Declare an operation with all its target-independent rules, which are the fields of `OpSpec`.

    The rules of other packages are checked here and when they run. Raises `RuleError` for an
    unknown rule, a rule of another kind, or a missing rule `type`, and `PluginError` if the name is
    taken.
    """
    if is_extension():
        check_declaration("define_op", name, {"type": None, **rules}, _RULE_KINDS)
        rules = with_checks(name, rules)
    spec = OpSpec(name, **rules)
    OPS.register(name, spec)
    return spec


@lru_cache(maxsize=1 << 16)
def factor_rule(
    spec: OpSpec,
    operands: tuple[TensorType, ...],
    results: tuple[TensorType, ...],
    attrs: tuple[tuple[str, Attr], ...],
) -> FactorRule | None:
    """Return the factor rule of one application of an operation; equal applications share it."""
    if spec.factors is None:
        return None
    result = results[0] if len(results) == 1 else results
    return spec.factors(*operands, result=result, **spec.rule_arguments(dict(attrs)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Value(Printed):
    """A tensor in SSA form: a block parameter or one result of one operation.

    `name` is for readers. A value keeps its name through every pass, so that the text before and
    after a pass differs only where the pass changed the program. `sharding` is `None` while no
    sharding is stated or inferred.
    """

    type: TensorType
    """The shape and the element type."""
    name: str = ""
    """The name in the text of the program."""
    sharding: Sharding | None = None
    """The sharding; `None` while no sharding is stated or inferred."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Op(Printed):
    """One application of an operation to values.

    `why` states the purpose of an operation that a pass created.
    """

    spec: OpSpec
    """The specification of the operation, with its name."""
    operands: tuple[Value, ...]
    """The operands."""
    results: tuple[Value, ...]
    """The results, which only this operation defines."""
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    """The attributes, by name."""
    blocks: tuple["Block", ...] = ()
    """The blocks of an operation with control flow, such as the body of a loop."""
    loc: Loc | None = None
    """The position in the user's program; `None` if it is unknown."""
    why: str = ""
    """The purpose of an operation that a pass created; empty for other operations."""

    @property
    def name(self) -> str:
        """The name of the operation, from its specification."""
        return self.spec.name

    @property
    def rule_arguments(self) -> Mapping[str, Attr]:
        """The keyword arguments by which rules receive the attributes."""
        return self.spec.rule_arguments(self.attrs)

    @property
    def result(self) -> Value:
        """The only result; raises `ValueError` if the operation has another number of results."""
        (result,) = self.results
        return result

    @property
    def tensors(self) -> tuple[Value, ...]:
        """The operands followed by the results, in the order of `FactorRule.tensors`."""
        return self.operands + self.results

    def with_tensors(self, operands: tuple[Value, ...], results: tuple[Value, ...]) -> "Op":
        """Return the operation with these operands and results; this one if they are its own."""
        if operands == self.operands and results == self.results:
            return self
        # The constructor is faster than `dataclasses.replace`.
        return Op(self.spec, operands, results, self.attrs, self.blocks, self.loc, self.why)

    def factors(self) -> FactorRule | None:
        """Return the factor rule: the factors of this operation and the dimensions they map to."""
        return factor_rule(
            self.spec,
            tuple(value.type for value in self.operands),
            tuple(value.type for value in self.results),
            tuple(self.attrs.items()),
        )

    def edges(self) -> tuple["DataFlowEdge", ...]:
        """Return the data flow edges into and out of the blocks of this operation."""
        return self.spec.edges(self) if self.spec.edges else ()

    def uses(self) -> Iterator[Value]:
        """Yield the operands and the values that the blocks capture, with repetitions."""
        yield from self.operands
        for block in self.blocks:
            yield from block.captures()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Block(Printed):
    """Operations in topological order, with parameters and returned values."""

    params: tuple[Value, ...]
    """The parameters."""
    ops: tuple[Op, ...]
    """The operations; each one follows the operations that define its operands."""
    returns: tuple[Value, ...]
    """The returned values: parameters or results of operations."""

    def values(self) -> Iterator[Value]:
        """Yield every value that this block defines, excluding those of nested blocks."""
        yield from self.params
        for op in self.ops:
            yield from op.results

    def walk(self) -> Iterator[Op]:
        """Yield every operation, each before the operations of its blocks."""
        for op in self.ops:
            yield op
            for block in op.blocks:
                yield from block.walk()

    def captures(self) -> tuple[Value, ...]:
        """Return the values that the block uses but does not define, in order of first use."""
        defined = set(self.values())
        used: dict[Value, None] = {}
        for op in self.ops:
            used.update(dict.fromkeys(v for v in op.uses() if v not in defined))
        used.update(dict.fromkeys(v for v in self.returns if v not in defined))
        return tuple(used)


@dataclass(frozen=True, slots=True)
class DataFlowEdge:
    """A data flow edge: the values of `sources` flow to all `targets`, so all have one sharding.

    The first target owns the edge (the result of a loop operation). Values in `stacked` have one
    additional leading dimension (the stacked inputs and outputs of a scan).
    """

    sources: tuple[Value, ...]
    targets: tuple[Value, ...]
    stacked: tuple[Value, ...] = ()


_DECORATORS = {
    "vjp": "the derivative of a function that calls it with custom_jvp or custom_vjp",
    "batch": "the batching of a function that calls it with custom_vmap",
}
_TRANSFORMS = {"vjp": "differentiate", "batch": "vectorize"}


def missing_rule_hint(op: Op, rule: str) -> str:
    """Return what to do where the rule of an operation is missing, with its separator.

    Operations with blocks and per-device operations that lack a rule result from passes, or a pass
    inlines them.
    """
    if OPS.origin(op.name) != OWN_ORIGIN:
        return f"; add the rule: define_op({op.name!r}, ..., {rule}=f)"
    if rule not in _TRANSFORMS:
        return ""
    if op.spec.inlined_by:
        return f"; {_TRANSFORMS[rule]} the program after the pass {op.spec.inlined_by}"
    if op.blocks or op.spec.spmd:
        return f"; {_TRANSFORMS[rule]} the program before the pass that adds {op.name}"
    return f"; define {_DECORATORS[rule]}"
