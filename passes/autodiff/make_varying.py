"""Make explicit where a replicated value becomes a varying one, by `vary` operations (JAX's
`pvary`).

before: `%y = mul(%w, %x)`, where `%x` varies along `a` and `%w` does not
after:  `%w.varying = vary(%w, axes=[a])`, `%y = mul(%w.varying, %x)`

Both differentiation modes need this: afterwards the operands of each operation vary along the same
axes, so that its declared transpose is valid. The transpose of `vary` is a sum over the devices,
and that of a sum over the devices (an `all-reduce` that is `shared`) is `vary`. Cotangents of
replicated values are replicated, and need no communication.

A value becomes varying once, where it is defined, and not in the loop or branch that uses it: its
cotangents are added up on each device first, and summed over the devices once. A branch that only
some devices execute contains no such sum.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from shardir import ops as specs
from shardir.errors import DifferentiateError
from shardir.ir.builder import Builder, UniqueNames
from shardir.ir.host_function import HostFunction
from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import NOT_VARYING, Symbol, Varying
from shardir.ir.sharding import Axes
from shardir.ir.types import INEXACT
from shardir.ops.control_flow.derivative_regions import argument_axes_of, derivative_rule_of
from shardir.ops.shape.rearrangements import reshape
from shardir.passes.autodiff.pullback import error
from shardir.passes.autodiff.varying import (
    dependent_values,
    divergent_axes,
    infer_varying_axes,
    union_of_varying_axes,
    vma_of,
)

RuleBlocks = tuple[Block, ...]
OutsideVarying = Callable[[Value], Varying]
CUSTOM_RULE_OPERATIONS = (specs.custom_jvp, specs.custom_vjp)
"""Operations with rules of the user, which are made explicit when they are instantiated."""


def make_varying_explicit(
    block: Block,
    initial: Mapping[Value, Varying],
    axes: Axes,
    names: UniqueNames,
    *,
    returns: Sequence[Varying] | None = None,
    within: Varying = NOT_VARYING,
    outside: OutsideVarying | None = None,
) -> Block:
    """Return the block with `vary` operations where values become varying along `axes`.

    `initial` holds the varying axes of parameters and captured values; `returns` the minimum
    varying axes of the results. Only some devices along `within` run the block. New values take
    names from `names`. Derivative rules may use values whose varying axes `outside` returns.
    """
    varying_axes = infer_varying_axes(block, initial, axes, within)
    making = _VaryInserter(varying_axes, axes, names, outside)
    return making.block(block, within, returns)


class _VaryInserter:
    def __init__(
        self,
        varying_axes: dict[Value, Varying],
        axes: Axes,
        names: UniqueNames,
        outside: OutsideVarying | None,
    ) -> None:
        self.found, self.axes, self.names, self.outside = varying_axes, axes, names, outside
        self.top: Builder | None = None
        self.homes: dict[Value, Builder] = {}
        """Block in which each value is defined; the outermost one for captured values."""
        self.broadcasts: dict[Value, Op] = {}
        self.made: dict[tuple[Value, Axes], Value] = {}

    def block(
        self, block: Block, within: Varying, returns: Sequence[Varying] | None = None
    ) -> Block:
        b = Builder(self.names)
        self.top = self.top or b
        self.homes.update(dict.fromkeys(block.params, b))
        for op in block.ops:
            b.loc, b.why = op.loc, op.why
            new_op = self.op(op, b, within)
            b.append(new_op)
            self.homes.update(dict.fromkeys(new_op.results, b))
            if new_op.spec is specs.broadcast:
                self.broadcasts[new_op.result] = new_op
        result_axes = (NOT_VARYING,) * len(block.returns) if returns is None else returns
        new_returns = tuple(
            self.vary_along(v, w) for v, w in zip(block.returns, result_axes, strict=True)
        )
        return Block(block.params, tuple(b.ops), new_returns)

    def op(self, op: Op, b: Builder, within: Varying) -> Op:
        if op.spec in CUSTOM_RULE_OPERATIONS:
            return self.region(op, within)
        if op.spec is specs.manual_computation:
            operands = self.vary_all(op.operands, within)
            return replace(op, operands=operands, blocks=self.blocks(op, within))
        if op.edges():
            return self.rewrite_edges(op, within)
        if op.blocks:
            operands = self.vary_all(
                op.operands, union_of_varying_axes(tuple(op.uses()), self.found) | within
            )
            return replace(op, operands=operands, blocks=self.blocks(op, within))
        varies = [self.found.get(value, NOT_VARYING) | within for value in op.operands]
        pairs = zip(op.operands, vma_of(op, varies, self.axes).operands, strict=True)
        op = replace(op, operands=tuple(self.vary_along(value, axes) for value, axes in pairs))
        if op.spec is specs.all_reduce:
            return self.all_reduce(op, b)
        return self.simplify_vary(op) if op.spec is specs.vary else op

    def blocks(self, op: Op, within: Varying) -> RuleBlocks:
        return tuple(self.block(block, within) for block in op.blocks)

    def all_reduce(self, op: Op, b: Builder) -> Op:
        """Split an all-reduce into the sum along other axes and then the shared one along manual
        axes."""
        own = tuple(axis for axis in op.attrs["axes"] if axis in self.axes)
        others = tuple(axis for axis in op.attrs["axes"] if axis not in self.axes)
        if not own:
            return op
        if others:
            (operand,) = op.operands
            attrs = {name: attr for name, attr in op.attrs.items() if name != "shared"}
            part: Value = b.emit(op.spec, operand, **{**attrs, "axes": others})
            self.found[part] = self.found.get(operand, NOT_VARYING)
            self.homes[part] = b
            op = replace(op, operands=(part,))
        return replace(op, attrs={**op.attrs, "axes": own, "shared": True})

    def simplify_vary(self, op: Op) -> Op:
        """Drop the axes of a `vary` along which its operand varies already."""
        there = self.found.get(op.operands[0], NOT_VARYING)
        axes = tuple(a for a in op.attrs["axes"] if a not in self.axes or a not in there)
        if not axes:
            return Op(reshape, op.operands, op.results, {}, (), op.loc, op.why)
        return replace(op, attrs={**op.attrs, "axes": axes})

    def rewrite_edges(self, op: Op, within: Varying) -> Op:
        """Rewrite loops and branches: a carried value has the same varying axes before and after an
        iteration."""
        # Edges name values, and one value may enter in several positions. A distinct copy for each
        # position keeps the positions distinguishable.
        starts = tuple(map(replace, op.operands))
        ends = tuple(
            Block(each.params, (), tuple(map(replace, each.returns))) for each in op.blocks
        )
        wants: dict[Value, Varying] = {}
        for edge in replace(op, operands=starts, blocks=ends).edges():
            wants.update(
                dict.fromkeys(edge.sources, union_of_varying_axes(edge.targets[:1], self.found))
            )

        def wanted_axes(places: Sequence[Value]) -> list[Varying]:
            return [wants.get(key, NOT_VARYING) for key in places]

        pairs = zip(op.operands, wanted_axes(starts), strict=True)
        operands = tuple(self.vary_along(value, axes) for value, axes in pairs)
        here = within | divergent_axes(op, self.found)
        blocks = tuple(
            self.block(block, here, wanted_axes(places.returns))
            for block, places in zip(op.blocks, ends, strict=True)
        )
        return replace(op, operands=operands, blocks=blocks)

    def region(self, op: Op, within: Varying) -> Op:
        """Rewrite a function with a derivative rule. Its operands keep their varying axes, to which
        the rule applies."""
        pairs = [
            (v, self.found.get(v, NOT_VARYING) | (known & set(self.axes)) | within)
            for v, known in zip(op.operands, argument_axes_of(op), strict=True)
        ]
        operands = tuple(self.vary_along(value, axes) for value, axes in pairs)
        ends = [self.found.get(value, NOT_VARYING) for value in op.results]
        first = self.block(op.blocks[0], within, ends)
        op = replace(op, operands=operands)
        finish = partial(_rewrite_rule, op, [a for _, a in pairs], ends, self, within)
        named = derivative_rule_of(op)
        if len(op.blocks) > 1:
            return replace(op, blocks=(first, *finish(op.blocks[1:])))
        if named is None:
            return replace(op, blocks=(first,))
        new = replace(named, trace=lambda differentiated: finish(named(differentiated)))
        rule = HostFunction(op.attrs["rule"], new)
        return replace(op, blocks=(first,), attrs={**op.attrs, "rule": rule})

    def varying_of_rule(self, block: Block, starts: Sequence[Varying]) -> dict[Value, Varying]:
        """Return the varying axes of the block of a rule, whose parameters vary along `starts`."""
        result = {**self.found, **dict(zip(block.params, starts, strict=True))}
        if self.outside is not None:
            for value in block.captures():
                if value not in result:
                    result[value] = self.outside(value)
        return result

    def vary_all(self, values: Sequence[Value], along: Varying) -> tuple[Value, ...]:
        return tuple(self.vary_along(value, along) for value in values)

    def vary_along(self, value: Value, along: Varying) -> Value:
        """Return the value, varying at least along the given axes."""
        missing = along - self.found.get(value, NOT_VARYING)
        axes = tuple(axis for axis in self.axes if axis in missing)
        if not axes or value.type.dtype not in INEXACT:
            return value
        if (value, axes) not in self.made:
            home = self.homes.get(value, self.top)
            assert home is not None
            source = self.broadcasts.get(value)
            if source is None:
                new_value: Value = home.vary(value, axes=axes, name=f"{value.name}.varying")
            else:  # The sum is cheaper before the broadcast.
                operand = self.vary_along(source.operands[0], along)
                name = self.names.fresh(f"{value.name}.varying")
                new_value = replace(value, name=name)
                home.append(replace(source, operands=(operand,), results=(new_value,)))
            self.found[new_value] = self.found.get(value, NOT_VARYING) | frozenset(axes)
            self.homes[new_value] = home
            self.made[value, axes] = new_value
        return self.made[value, axes]


def _rewrite_rule(
    op: Op,
    starts: Sequence[Varying],
    ends: Sequence[Varying],
    making: _VaryInserter,
    within: Varying,
    blocks: RuleBlocks,
) -> RuleBlocks:
    """Return the explicit blocks of a rule; `starts` and `ends` are the varying axes of operands
    and results.

    A tangent, a cotangent and a gradient vary along the axes of their value, as in JAX. Gradients
    of a rule with `sums_gradients` may vary along more axes; these are summed.
    """
    count = len(op.operands) - op.attrs.get("closed", 0)
    operand_axes = [
        a for v, a in zip(op.operands[:count], starts, strict=False) if _is_differentiable(v)
    ]
    result_axes = [a for v, a in zip(op.results, ends, strict=True) if _is_differentiable(v)]
    if op.spec is specs.custom_jvp:
        (rule,) = blocks
        what = [*("result" for _ in ends), *("tangent" for _ in result_axes)]
        initial = making.varying_of_rule(rule, [*starts, *operand_axes])
        varying_axes = infer_varying_axes(rule, initial, making.axes, within)
        _check_tangents(op, rule, ends, varying_axes, making.axes, within)
        return (
            _rewrite_rule_block(op, rule, initial, [*ends, *result_axes], what, making, within),
        )
    ahead, back = blocks
    initial = making.varying_of_rule(ahead, starts)
    varying_axes = infer_varying_axes(ahead, initial, making.axes, within)
    residuals = [varying_axes.get(value, NOT_VARYING) for value in ahead.returns[len(ends) :]]
    names = [*("result" for _ in ends), *("" for _ in residuals)]
    ahead = _rewrite_rule_block(op, ahead, initial, [*ends, *residuals], names, making, within)
    initial = making.varying_of_rule(back, [*residuals, *result_axes, *starts[count:]])
    varying_axes = infer_varying_axes(back, initial, making.axes, within)
    _check_gradients(op, back, operand_axes, varying_axes, making.axes, within)
    names = ["" for _ in operand_axes]
    return ahead, _rewrite_rule_block(op, back, initial, operand_axes, names, making, within)


def _check_gradients(
    op: Op,
    rule: Block,
    arguments: Sequence[Varying],
    varying_axes: Mapping[Value, Varying],
    axes: Axes,
    within: Varying,
) -> None:
    """Raise `DifferentiateError` for a gradient that varies along other axes than its argument.

    It may be a sum over the devices, the contribution of one device to that sum, or equal on all
    devices.
    """
    params, named = op.blocks[0].params, derivative_rule_of(op)
    names = named.argument_names if named else [f"%{param.name}" for param in params]
    each = [name for name, x in zip(names, params, strict=False) if _is_differentiable(x)]
    missing = _missing_axes(rule, rule.returns, arguments, varying_axes, axes, within)
    for name, less in zip(each, missing, strict=False):
        if less:
            what = f"a gradient of argument {name}"
            raise _varies_less_error(op, what, f"argument {name}", less)
    if named and named.sums_gradients:
        return
    for name, value, argument_axes in zip(each, rule.returns, arguments, strict=False):
        more = varying_axes.get(value, NOT_VARYING) - argument_axes
        if more:
            raise _gradient_varies_error(op, name, tuple(axis for axis in axes if axis in more))


def _check_tangents(
    op: Op,
    rule: Block,
    expected: Sequence[Varying],
    varying_axes: Mapping[Value, Varying],
    axes: Axes,
    within: Varying,
) -> None:
    """Raise `DifferentiateError` for a result of a rule that varies along fewer axes than that of
    the function, or a tangent that varies along fewer axes than its result."""
    count = len(op.results)
    result_axes = [a for v, a in zip(op.results, expected, strict=True) if _is_differentiable(v)]
    places = [i for i, value in enumerate(op.results) if _is_differentiable(value)]
    results = [rule.returns[i] for i in places]
    for what, values in (("", results), ("a tangent of ", rule.returns[count:])):
        missing = _missing_axes(rule, values, result_axes, varying_axes, axes, within)
        for i, less in zip(places, missing, strict=True):
            if less:
                owner = f"result {i} of the function"
                raise _varies_less_error(op, f"{what}result {i}", owner, less)


def _missing_axes(
    rule: Block,
    derivatives: Sequence[Value],
    expected: Sequence[Varying],
    varying_axes: Mapping[Value, Varying],
    axes: Axes,
    within: Varying,
) -> list[Axes]:
    """Return the axes along which each derivative does not vary and must.

    A constant, such as zeros, is correct on each device.
    """
    variable = dependent_values(rule, (*rule.params, *rule.captures()))
    missing = []
    for value, required in zip(derivatives, expected, strict=True):
        less = required - varying_axes.get(value, NOT_VARYING) - within
        missing.append(tuple(axis for axis in axes if axis in less and value in variable))
    return missing


def _is_differentiable(value: Value) -> bool:
    return value.type.dtype in INEXACT


def _rewrite_rule_block(
    op: Op,
    block: Block,
    initial: Mapping[Value, Varying],
    ends: Sequence[Varying],
    what: Sequence[str],
    making: _VaryInserter,
    within: Varying,
) -> Block:
    """Return an explicit block of a rule whose results vary along `ends`.

    Results that `what` names must not vary along more axes; others are summed.
    """
    varying_block = make_varying_explicit(
        block,
        initial,
        making.axes,
        making.names,
        returns=ends,
        within=within,
        outside=making.outside,
    )
    varying_axes = infer_varying_axes(varying_block, initial, making.axes, within)
    b = Builder(making.names, op.loc)
    returns = []
    for value, end, name in zip(varying_block.returns, ends, what, strict=True):
        more = varying_axes.get(value, NOT_VARYING) - end
        axes = tuple(axis for axis in making.axes if axis in more)
        if axes:
            if name:
                raise _varies_more_error(op, name)
            b.why = f"what the devices contribute to a gradient of {op.attrs['rule']}"
            value = b.all_reduce(value, axes=axes, op=Symbol("add"), shared=True)
        returns.append(value)
    return Block(varying_block.params, (*varying_block.ops, *b.ops), tuple(returns))


def _varies_more_error(op: Op, what: str) -> DifferentiateError:
    return error(
        f"the rule of {op.attrs['rule']} returns a {what} that may differ between devices, "
        f"but the result of {op.attrs['rule']} is replicated; reduce it as the function does, for "
        "example by lax.psum",
        op,
    )


def _axis_texts(op: Op, axes: Axes) -> tuple[str, str]:
    """Return the names of axes as a phrase, and as an argument of a collective."""
    named = derivative_rule_of(op)
    known = named.axis_names if named else {}
    names = [known.get(axis, axis.name) for axis in axes]
    return " and ".join(map(repr, names)), repr(names[0] if len(names) == 1 else tuple(names))


def _gradient_varies_error(op: Op, name: str, axes: Axes) -> DifferentiateError:
    phrase, argument = _axis_texts(op, axes)
    return error(
        f"the rule of {op.attrs['rule']} returns a gradient of argument {name} that may vary along "
        f"{phrase}, and argument {name} does not; return lax.psum(gradient, {argument}) if each "
        f"device computes its contribution, or lax.pmean(gradient, {argument}) if the devices have "
        "equal gradients",
        op,
    )


def _varies_less_error(op: Op, what: str, owner: str, axes: Axes) -> DifferentiateError:
    phrase, argument = _axis_texts(op, axes)
    return error(
        f"the rule of {op.attrs['rule']} returns {what} that does not vary along {phrase}, and "
        f"{owner} does; return the value of each device, for example without lax.psum, or, if the "
        f'devices have equal values, lax.pcast(value, {argument}, to="varying")',
        op,
    )


def remove_explicit_varying(axes: Axes, *blocks: Block) -> tuple[Block, ...]:
    """Return the blocks without the `vary` operations and shared sums that make varying explicit
    along `axes`.

    Later blocks may use values of earlier ones.
    """
    gone = frozenset(axes)
    new: dict[Value, Value] = {}

    def rebuilt(block: Block) -> Block:
        ops = []
        for op in block.ops:
            operands = tuple(new.get(v, v) for v in op.operands)
            attrs = op.attrs
            if op.spec is specs.vary:
                left = tuple(axis for axis in attrs["axes"] if axis not in gone)
                if not left:
                    new[op.result] = operands[0]
                    continue
                attrs = {**attrs, "axes": left}
            elif "shared" in attrs and gone & set(attrs["axes"]):
                # The shared sum along other axes is made explicit again before the next derivative.
                attrs = {name: attr for name, attr in attrs.items() if name != "shared"}
            blocks = tuple(map(rebuilt, op.blocks))
            ops.append(replace(op, operands=operands, attrs=attrs, blocks=blocks))
        return Block(block.params, tuple(ops), tuple(new.get(v, v) for v in block.returns))

    return tuple(map(rebuilt, blocks))
