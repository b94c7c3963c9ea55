"""Sum once over what is summed in parts.

before: `%g.part = dot(%h, %d, dims="abi,abo->aio") : f32[4, 784, 10]`
        `%g = sum(%g.part, dims=[0]) : f32[784, 10]`
after:  `%g = dot(%h, %d, dims="abi,abo->io") : f32[784, 10]`

The sum over devices of what each has contracted is one contraction, and so is that of gradients of
filters; the sum of sums is one sum, the largest of largest one reduction. Reshapes and transposes
in between are looked through. Only what nobody else uses is changed. Numbers may be added in
another order, and in the accumulator of a contraction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shardir.build import Builder
from shardir.ir import Block, Function, Module, Op, Value
from shardir.ops.convolution_loops import sides
from shardir.passes.folding import views
from shardir.passes.folding.views import Dims, View
from shardir.passes.pipeline import Pass
from shardir.passes.program import names_of

REDUCTIONS = ("sum", "prod", "max", "min", "any", "all")


@dataclass(frozen=True)
class FoldSums(Pass, name="fold-sums"):
    """One reduction where there are several in a row, or a contraction before it."""

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(map(_function, module.functions)))


def _function(function: Function) -> Function:
    uses: dict[Value, int] = {}
    for op in function.body.walk():
        for value in op.operands:
            uses[value] = uses.get(value, 0) + 1
        for block in op.blocks:
            for value in block.returns:
                uses[value] = uses.get(value, 0) + 1
    for value in function.body.returns:
        uses[value] = uses.get(value, 0) + 1
    summer = _Summer(Builder(names_of(function)), uses)
    return replace(function, body=summer.block(function.body))


class _Summer:
    def __init__(self, b: Builder, uses: dict[Value, int]) -> None:
        self.b, self.uses = b, uses
        self.makers: dict[Value, Op] = {}
        self.seen: dict[Value, View] = {}

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        outer, self.b.ops = self.b.ops, ops
        for op in block.ops:
            if op.blocks:
                op = replace(op, blocks=tuple(map(self.block, op.blocks)))
            if op.name not in REDUCTIONS or not self.folded(op):
                self.b.append(op)
                self.known(op)
        self.b.ops = outer
        return Block(block.params, tuple(ops), block.returns)

    def known(self, op: Op) -> None:
        for result in op.results:
            self.makers[result] = op
        if op.name not in ("transpose", "reshape") or not op.result.type.size:
            return
        if self.uses.get(op.operands[0]) == 1:
            x = self.get(op.operands[0])
            dims: Dims | None
            if op.name == "transpose":
                dims = tuple(x.dims[d] for d in op.attrs["perm"])
            else:
                dims = views.regrouped(x.dims, op.result.type.shape)
            if dims is not None:
                self.seen[op.result] = View(x.base, dims)

    def get(self, value: Value) -> View:
        found = self.seen.get(value)
        return views.of(value) if found is None else found

    def folded(self, op: Op) -> bool:
        """Whether it was made one with what is reduced; if so, it has been appended."""
        (x,) = op.operands
        if self.uses.get(x) != 1 or not x.type.size or not op.attrs["dims"]:
            return False
        view = self.get(x)
        maker = self.makers.get(view.base)
        if maker is None:
            return False
        gone = [piece for d in op.attrs["dims"] for piece in view.dims[d]]
        left = tuple(each for d, each in enumerate(view.dims) if d not in op.attrs["dims"])
        rule = _RULES.get(maker.name)
        if rule is None or (maker.name != op.name and op.name != "sum"):
            return False
        made = rule(self.b, maker, op, gone, left)
        if made is None:
            return False
        result = op.result
        last = self.b.ops[-1]
        self.b.ops[-1] = replace(last, results=(result,))
        self.known(self.b.ops[-1])
        return True


Rule = Callable[[Builder, Op, Op, Sequence[views.Piece], Dims], Value | None]


def _whole_dims(base: Value, gone: Sequence[views.Piece]) -> tuple[int, ...] | None:
    """The dimensions of a base that pieces walk, if they walk all of each."""
    walked: dict[int, int] = {}
    for piece in gone:
        walked[piece.dim] = walked.get(piece.dim, 1) * piece.size
    if any(base.type.shape[d] != n for d, n in walked.items()):
        return None
    return tuple(sorted(walked))


def _finished(b: Builder, made: Value, gone: Sequence[int], left: Dims) -> None:
    """What is left of a view whose base has lost the dimensions `gone`."""
    place: dict[int, int] = {}
    for d in range(made.type.rank + len(gone)):
        if d not in gone:
            place[d] = len(place)
    dims = tuple(tuple(piece._replace(dim=place[piece.dim]) for piece in pieces) for pieces in left)
    views.made(b, View(made, dims))


def _reduction(
    b: Builder, first: Op, op: Op, gone: Sequence[views.Piece], left: Dims
) -> Value | None:
    dims = _whole_dims(first.result, gone)
    if dims is None:
        return None
    (x,) = first.operands
    kept = [d for d in range(x.type.rank) if d not in first.attrs["dims"]]
    every = tuple(sorted((*first.attrs["dims"], *(kept[d] for d in dims))))
    b.loc, b.why = op.loc, op.why
    made: Value = b.emit(op.spec, x, dims=every)
    _finished(b, made, dims, left)
    return made


def _dot(b: Builder, first: Op, op: Op, gone: Sequence[views.Piece], left: Dims) -> Value | None:
    dims = _whole_dims(first.result, gone)
    if dims is None or not dims:
        return None
    inputs, _, output = first.attrs["dims"].partition("->")
    one, other = inputs.split(",")
    if any(output[d] not in one or output[d] not in other for d in dims):
        return None
    kept = "".join(letter for d, letter in enumerate(output) if d not in dims)
    b.loc, b.why = op.loc, op.why
    type = op.result.type.with_shape(
        [n for d, n in enumerate(first.result.type.shape) if d not in dims]
    )
    made: Value = b.dot(*first.operands, dims=f"{inputs}->{kept}", result=type)
    _finished(b, made, dims, left)
    return made


def _convolution(
    b: Builder, first: Op, op: Op, gone: Sequence[views.Piece], left: Dims
) -> Value | None:
    """Over groups: the features of a group are as good as more features to add up."""
    _, by, to = sides(first.attrs["dims"])
    groups = first.attrs.get("groups", 1)
    x, w = first.operands
    if len(gone) != 1 or first.attrs.get("batch_groups", 1) != 1 or groups == 1:
        return None
    (piece,) = gone
    outputs = first.result.type.shape[to.second]
    if piece.dim != to.second or piece.size != groups or piece.stride * groups != outputs:
        return None
    # The filter [inputs, groups * outputs] as [groups * inputs, outputs].
    b.loc, b.why = op.loc, op.why
    dims = list(views.straight(w.type.shape))
    inputs = w.type.shape[by.first]
    dims[by.first] = views.joined(
        [views.Piece(by.second, piece.stride, groups), views.Piece(by.first, 1, inputs)]
    )
    dims[by.second] = views.joined([views.Piece(by.second, 1, piece.stride)])
    turned = views.made(b, View(w, tuple(dims)))
    shape = list(first.result.type.shape)
    shape[to.second] = piece.stride
    attrs = {**first.attrs, "groups": 1}
    made: Value = b.convolution(x, turned, result=first.result.type.with_shape(shape), **attrs)
    views.made(b, View(made, left))
    return made


_RULES: dict[str, Rule] = {
    **dict.fromkeys(REDUCTIONS, _reduction),
    "dot": _dot,
    "convolution": _convolution,
}
