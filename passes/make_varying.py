"""Make explicit where a replicated value becomes a varying one, by `vary` operations (JAX's
`pvary`).

before: `%y = mul(%w, %x)`, where `%x` varies along `a` and `%w` does not
after:  `%w.each = vary(%w, axes=[a])`, `%y = mul(%w.each, %x)`

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

from shardir.build import Builder, Names
from shardir.errors import DifferentiateError
from shardir.hosted import Hosted, function_of
from shardir.ir import Block, Op, Value
from shardir.ops.shape import reshape
from shardir.opset import Symbol
from shardir.passes.pullback import error
from shardir.passes.varying import decision, union, varying, vma_of
from shardir.placement import Axes
from shardir.types import INEXACT
from shardir.vma import NONE, Varying

Rule = tuple[Block, ...]
Outside = Callable[[Value], Varying]
RULES = ("custom-jvp", "custom-vjp")
"""Operations with rules of the user, which are made explicit when they are instantiated."""


def explicit(
    block: Block,
    known: Mapping[Value, Varying],
    axes: Axes,
    names: Names,
    *,
    returns: Sequence[Varying] | None = None,
    within: Varying = NONE,
    outside: Outside | None = None,
) -> Block:
    """Return the block with `vary` operations where values become varying along `axes`.

    `known` holds the varying axes of parameters and captured values; `returns` the minimum varying
    axes of the results. Only some devices along `within` run the block. New values take names from
    `names`. Derivative rules may use values whose varying axes `outside` returns.
    """
    found = varying(block, known, axes, within)
    making = _Making(found, axes, names, outside)
    return making.block(block, within, returns)


class _Making:
    def __init__(
        self, found: dict[Value, Varying], axes: Axes, names: Names, outside: Outside | None
    ) -> None:
        self.found, self.axes, self.names, self.outside = found, axes, names, outside
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
            made = self.op(op, b, within)
            b.append(made)
            self.homes.update(dict.fromkeys(made.results, b))
            if made.name == "broadcast":
                self.broadcasts[made.result] = made
        wanted = (NONE,) * len(block.returns) if returns is None else returns
        given = tuple(self.one(v, w) for v, w in zip(block.returns, wanted, strict=True))
        return Block(block.params, tuple(b.ops), given)

    def op(self, op: Op, b: Builder, within: Varying) -> Op:
        if op.name in RULES:
            return self.region(op, within)
        if op.name == "manual_computation":
            operands = self.each(op.operands, within)
            return replace(op, operands=operands, blocks=self.blocks(op, within))
        if op.edges():
            return self.flowing(op, within)
        if op.blocks:
            operands = self.each(op.operands, union(tuple(op.uses()), self.found) | within)
            return replace(op, operands=operands, blocks=self.blocks(op, within))
        varies = [self.found.get(value, NONE) | within for value in op.operands]
        pairs = zip(op.operands, vma_of(op, varies, self.axes).operands, strict=True)
        op = replace(op, operands=tuple(self.one(value, axes) for value, axes in pairs))
        if op.name == "all-reduce":
            return self.all_reduce(op, b)
        return self.vary(op) if op.name == "vary" else op

    def blocks(self, op: Op, within: Varying) -> Rule:
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
            self.found[part] = self.found.get(operand, NONE)
            self.homes[part] = b
            op = replace(op, operands=(part,))
        return replace(op, attrs={**op.attrs, "axes": own, "shared": True})

    def vary(self, op: Op) -> Op:
        """Drop the axes of a `vary` along which its operand varies already."""
        there = self.found.get(op.operands[0], NONE)
        axes = tuple(a for a in op.attrs["axes"] if a not in self.axes or a not in there)
        if not axes:
            return Op(reshape, op.operands, op.results, {}, (), op.loc, op.why)
        return replace(op, attrs={**op.attrs, "axes": axes})

    def flowing(self, op: Op, within: Varying) -> Op:
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
            wants.update(dict.fromkeys(edge.sources, union(edge.targets[:1], self.found)))

        def wanted_axes(places: Sequence[Value]) -> list[Varying]:
            return [wants.get(place, NONE) for place in places]

        pairs = zip(op.operands, wanted_axes(starts), strict=True)
        operands = tuple(self.one(value, axes) for value, axes in pairs)
        here = within | decision(op, self.found)
        blocks = tuple(
            self.block(block, here, wanted_axes(places.returns))
            for block, places in zip(op.blocks, ends, strict=True)
        )
        return replace(op, operands=operands, blocks=blocks)

    def region(self, op: Op, within: Varying) -> Op:
        """Rewrite a function with a derivative rule. Its operands keep their varying axes, to which
        the rule applies."""
        pairs = [(v, self.found.get(v, NONE) | within) for v in op.operands]
        operands = tuple(self.one(value, axes) for value, axes in pairs)
        ends = [self.found.get(value, NONE) for value in op.results]
        first = self.block(op.blocks[0], within, ends)
        op = replace(op, operands=operands)
        finish = partial(_rule, op, [a for _, a in pairs], ends, self, within)
        trace = function_of(op.attrs["rule"])
        if len(op.blocks) > 1:
            return replace(op, blocks=(first, *finish(op.blocks[1:])))
        if trace is None:
            return replace(op, blocks=(first,))
        rule = Hosted(op.attrs["rule"], lambda moves: finish(trace(moves)))
        return replace(op, blocks=(first,), attrs={**op.attrs, "rule": rule})

    def known(self, block: Block, starts: Sequence[Varying]) -> dict[Value, Varying]:
        """Return the varying axes of the block of a rule, whose parameters vary along `starts`."""
        known = {**self.found, **dict(zip(block.params, starts, strict=True))}
        if self.outside is not None:
            for value in block.captures():
                if value not in known:
                    known[value] = self.outside(value)
        return known

    def each(self, values: Sequence[Value], wanted: Varying) -> tuple[Value, ...]:
        return tuple(self.one(value, wanted) for value in values)

    def one(self, value: Value, wanted: Varying) -> Value:
        """Return the value, varying at least along the wanted axes."""
        missing = wanted - self.found.get(value, NONE)
        axes = tuple(axis for axis in self.axes if axis in missing)
        if not axes or value.type.dtype not in INEXACT:
            return value
        if (value, axes) not in self.made:
            home = self.homes.get(value, self.top)
            assert home is not None
            source = self.broadcasts.get(value)
            if source is None:
                made: Value = home.vary(value, axes=axes, name=f"{value.name}.each")
            else:  # The sum is cheaper before the broadcast.
                operand = self.one(source.operands[0], wanted)
                name = self.names.fresh(f"{value.name}.each")
                made = replace(value, name=name)
                home.append(replace(source, operands=(operand,), results=(made,)))
            self.found[made] = self.found.get(value, NONE) | frozenset(axes)
            self.homes[made] = home
            self.made[value, axes] = made
        return self.made[value, axes]


def _rule(
    op: Op,
    starts: Sequence[Varying],
    ends: Sequence[Varying],
    making: _Making,
    within: Varying,
    blocks: Rule,
) -> Rule:
    """Return the explicit blocks of a rule; `starts` and `ends` are the varying axes of operands
    and results.

    A tangent and a cotangent vary along the axes of their value. A gradient that varies along more
    axes than its operand is the contribution of each device.
    """
    count = len(op.operands) - op.attrs.get("closed", 0)
    moving = [a for v, a in zip(op.operands[:count], starts, strict=False) if _moves(v)]
    moved = [a for v, a in zip(op.results, ends, strict=True) if _moves(v)]
    if op.name == "custom-jvp":
        (rule,) = blocks
        what = [*("result" for _ in ends), *("tangent" for _ in moved)]
        return (_fitted(op, rule, [*starts, *moving], [*ends, *moved], what, making, within),)
    ahead, back = blocks
    found = varying(ahead, making.known(ahead, starts), making.axes, within)
    residuals = [found.get(value, NONE) for value in ahead.returns[len(ends) :]]
    names = [*("result" for _ in ends), *("" for _ in residuals)]
    ahead = _fitted(op, ahead, starts, [*ends, *residuals], names, making, within)
    given = [*residuals, *moved, *starts[count:]]
    return ahead, _fitted(op, back, given, moving, ["" for _ in moving], making, within)


def _moves(value: Value) -> bool:
    return value.type.dtype in INEXACT


def _fitted(
    op: Op,
    block: Block,
    starts: Sequence[Varying],
    ends: Sequence[Varying],
    what: Sequence[str],
    making: _Making,
    within: Varying,
) -> Block:
    """Return an explicit block of a rule whose results vary along `ends`.

    Results that `what` names must not vary along more axes; others are summed.
    """
    known = making.known(block, starts)
    made = explicit(
        block,
        known,
        making.axes,
        making.names,
        returns=ends,
        within=within,
        outside=making.outside,
    )
    found = varying(made, known, making.axes, within)
    b = Builder(making.names, op.loc)
    returns = []
    for value, end, name in zip(made.returns, ends, what, strict=True):
        more = found.get(value, NONE) - end
        axes = tuple(axis for axis in making.axes if axis in more)
        if axes and _moves(value) and name:
            raise _varies_more(op, name)
        if axes and _moves(value):
            b.why = f"what the devices contribute to a gradient of {op.attrs['rule']}"
            value = b.all_reduce(value, axes=axes, op=Symbol("add"), shared=True)
        returns.append(value)
    return Block(made.params, (*made.ops, *b.ops), tuple(returns))


def _varies_more(op: Op, what: str) -> DifferentiateError:
    return error(
        f"the rule of {op.attrs['rule']} returns a {what} that may differ between devices, "
        f"but the result of {op.attrs['rule']} is replicated; reduce it as the function does, for "
        "example by lax.psum",
        op,
    )


def implicit(axes: Axes, *blocks: Block) -> tuple[Block, ...]:
    """Return the blocks without the `vary` operations and shared sums of `explicit` along `axes`.

    Later blocks may use values of earlier ones.
    """
    gone = frozenset(axes)
    new: dict[Value, Value] = {}

    def rebuilt(block: Block) -> Block:
        ops = []
        for op in block.ops:
            operands = tuple(new.get(v, v) for v in op.operands)
            attrs = op.attrs
            if op.name == "vary":
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
