"""Fuse matrix products with the softmax between them, as in attention and its gradient.

before: `%s = dot(%q, %k, dims="th,sh->ts")`, `%m = max(%s, dims=[1])`, `%2 = exp(%1)`,
        `%p = div(%2, %3)`, `%y = dot(%p, %v, dims="ts,sh->th")`
after:  `%y = fused_products(%q, %k, %v) : f32[64, 8] { ... %s.1 = dot(%q.1, %k.1,
        dims="th,sh->ts") ... %m.1 = max(%s.1, dims=[1]) ... %p.1 = div(%6, %7) ...
        %y.1 = dot(%p.1, %v.1, dims="ts,sh->th") ... }`

`shardir.ops.control_flow.fused_products` states what such an operation may contain. A group of
scores begins with a product, and contains all elementwise operations, reductions and products that
use its scores. At least one reduction must be among them (the softmax), so that layers of a
perceptron are no group. Masks and biases that are computed from small values, also outside of the
loop that contains a group, are computed again in the group.

If products of a group depend on sums of the group, or on results through operations outside of it,
as the gradient depends on the result of attention, the group is divided into operations that follow
each other. A later one computes the scores again from the results of reductions, such as the
largest score of each row; storing the scores would take memory that is quadratic in the length of a
sequence (T. Dao et al., FlashAttention, 2022).

With `convert_inside=true`, a group converts the 16-bit matrices that it multiplies in f32 itself:
its kernels then read half the bytes, and multiply by 16-bit numbers, which matrix units support.

A group whose scores are used by another operation, or returned, is left unchanged.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import prod

from shardir.ir.builder import UniqueNames
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ops.contraction.dot import dot
from shardir.ops.control_flow.fused_products import (
    ROW_REDUCTIONS,
    ProductNest,
    build_product_nest,
    fused_products,
)
from shardir.ops.control_flow.loop_unification import (
    is_pointwise,
    is_unit_reshape,
    non_unit_dims,
    non_unit_sizes,
)
from shardir.ops.elementwise.elementwise import convert
from shardir.ops.shape.create import constant, iota
from shardir.ops.shape.rearrangements import broadcast, reshape
from shardir.passes.fusion.build import (
    parse_operation_names,
    rebuild_nested_blocks,
    sort_topologically,
)
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import rebuild_functions, used_names

MIN_EXTENT = 16
"""Minimum extent of the row and the column loop."""
MAX_FEATURES = 512
"""Maximum extent of a dimension of matrices that scores lack, whose tiles must fit the caches."""
MAX_COPIED_OPS = 24
"""Maximum number of operations outside of a group that are copied to compute an operand."""
Dims = tuple[int, ...]


@dataclass(frozen=True)
class FuseProducts(Pass, name="fuse-products"):
    """Group matrix products with the softmax between them.

    `without` names operations that groups do not contain, separated by `+`. With `convert_inside`,
    groups contain the conversions of 16-bit matrices to f32.
    """

    without: str = ""
    convert_inside: bool = False

    def __call__(self, module: Module) -> Module:
        excluded = parse_operation_names(self.without)
        options = _Options(excluded, self.convert_inside)
        return rebuild_functions(module, lambda function: _fuse_function(function, options))


@dataclass(frozen=True, slots=True)
class _Options:
    excluded: Set[str]
    convert_inside: bool


def _fuse_function(function: Function, options: _Options) -> Function:
    if sum(op.spec is dot for op in function.body.walk()) < 2:
        return function
    body = _fuse_block(function.body, options, used_names(function), {})
    return function if body is function.body else replace(function, body=body)


def _fuse_block(
    block: Block, options: _Options, names: UniqueNames, outer: Mapping[Value, Op]
) -> Block:
    """Return the block with fused products; the block itself if it has none.

    `outer` has the operations of the blocks around it, by their results.
    """
    known = {**outer, **_makers(block)}
    block = rebuild_nested_blocks(block, lambda inner: _fuse_block(inner, options, names, known))
    while (replaced := _fuse_first_group(block, options, names, outer)) is not None:
        block = replaced
    return block


def _fuse_first_group(
    block: Block, options: _Options, names: UniqueNames, outer: Mapping[Value, Op]
) -> Block | None:
    """Return the block with the products of one group fused; `None` if it has no such group."""
    makers = _makers(block)
    users: dict[Value, list[Op]] = {}
    for op in block.ops:
        for value in dict.fromkeys(op.uses()):
            users.setdefault(value, []).append(op)
    for op in block.ops:
        if op.spec is dot and not _has_long_features(op):
            group = _ScoreGroup(makers, outer)
            _grow_group(group, op, users, set(block.returns))
            replaced = _replace_group(block, group, options, names) if group.is_closed else None
            if replaced is not None:
                return replaced
    return None


def _has_long_features(product: Op) -> bool:
    """Return whether a product sums over a dimension of more than `MAX_FEATURES`; it then belongs
    to no group."""
    terms, _, output = product.attrs["dims"].partition("->")
    return any(
        size > MAX_FEATURES and letter not in output
        for term, operand in zip(terms.split(","), product.operands, strict=True)
        for letter, size in zip(term, operand.type.shape, strict=True)
    )


@dataclass
class _ScoreGroup:
    """The operations that compute or use scores of one shape.

    `makers` are the operations of the block, and `outer` those of the blocks around it. `members`
    maps scores and values of rows to their operations, `sums` the results of products of scores.
    `is_closed`: no other operation uses scores.
    """

    makers: Mapping[Value, Op]
    outer: Mapping[Value, Op]
    members: dict[Value, Op] = field(default_factory=dict)
    rows: dict[Value, None] = field(default_factory=dict)
    sums: dict[Value, Op] = field(default_factory=dict)
    is_closed: bool = True

    def maker(self, value: Value) -> Op | None:
        """Return the operation that computes a value; `None` for a parameter of a block."""
        return self.makers.get(value) or self.outer.get(value)

    @property
    def results(self) -> Set[Value]:
        """The values of the group that other operations may use."""
        return {*self.rows, *self.sums}


def _makers(block: Block) -> dict[Value, Op]:
    return {result: op for op in block.ops for result in op.results}


def _grow_group(
    group: _ScoreGroup, first: Op, users: Mapping[Value, Sequence[Op]], returned: Set[Value]
) -> None:
    """Add a product, and the operations that compute or use scores with it, to an empty group.

    `users` has the operations of the block that use each value, and `returned` the values that it
    returns.
    """
    shape = non_unit_sizes(first.result.type)
    pending = [first]
    while pending:
        op = pending.pop()
        value = op.results[0]
        if value in group.members:
            continue
        if op.spec in ROW_REDUCTIONS or _is_row_operation(op, group):
            group.members[value] = op
            group.rows[value] = None
            pending += [user for user in users.get(value, ()) if _joins_row(user, shape, group)]
            continue
        if op.spec is dot and any(x in group.members and x not in group.rows for x in op.operands):
            group.sums[value] = op
            continue
        group.members[value] = op
        if value in returned:
            group.is_closed = False
            return
        for user in users.get(value, ()):
            if not (user.spec is dot or _joins(user, shape) or user.spec in ROW_REDUCTIONS):
                group.is_closed = False
                return
            pending.append(user)
        if op.spec is not dot:
            made = (group.makers[value] for value in op.operands if value in group.makers)
            pending += [each for each in made if _has_products(each, shape, group.makers)]
    group.is_closed = bool(group.rows and group.sums)


def _joins(op: Op, shape: tuple[int, ...]) -> bool:
    """Return whether an operation that uses scores computes scores."""
    is_local = is_pointwise(op.spec) or op.spec in (reshape, broadcast)
    return is_local and non_unit_sizes(op.result.type) == shape


def _is_row_operation(op: Op, group: _ScoreGroup) -> bool:
    """Return whether an operation computes values of rows from such values and constants."""
    is_local = is_pointwise(op.spec) or (op.spec is reshape and is_unit_reshape(op))
    others = [group.maker(value) for value in op.operands if value not in group.rows]
    return is_local and all(op and _is_number(op) for op in others)


def _is_number(op: Op) -> bool:
    return op.spec is constant and isinstance(op.attrs["value"], (int, float, bool))


def _joins_row(op: Op, shape: tuple[int, ...], group: _ScoreGroup) -> bool:
    """Return whether an operation that uses a value of each row belongs to the group."""
    if op.spec is broadcast and non_unit_sizes(op.result.type) == shape:
        return True
    return _is_row_operation(op, group)


def _has_products(op: Op, shape: tuple[int, ...], makers: Mapping[Value, Op]) -> bool:
    """Return whether scores are computed from a product of the same shape."""
    pending, seen = [op], set[Op]()
    while pending:
        now = pending.pop()
        if now in seen or non_unit_sizes(now.results[0].type) != shape:
            continue
        seen.add(now)
        if now.spec is dot:
            return True
        if _joins(now, shape):
            pending += [makers[value] for value in now.operands if value in makers]
    return False


def _replace_group(
    block: Block, group: _ScoreGroup, options: _Options, names: UniqueNames
) -> Block | None:
    """Return the block with an operation for each level of a group; `None` if that is impossible or
    not worthwhile."""
    levels = _number_levels(block, group)
    returned = set(block.returns)
    inside = {*group.members, *group.sums}
    needed = {value for value in group.results if value in returned}
    for op in block.ops:
        if not op.results or op.results[0] not in inside:
            needed.update(value for value in op.uses() if value in inside)
    made: list[tuple[int, Op]] = []
    order = {result: number for number, op in enumerate(block.ops) for result in op.results}
    for level in sorted({levels[value] for value in inside}, reverse=True):
        results = [value for value in order if value in needed and levels[value] == level]
        if not results:
            continue
        builder = _ProductsBuilder(group, levels, level, names, options.convert_inside)
        built = builder.build(results)
        if built is None or any(op.name in options.excluded for op in built.blocks[0].ops):
            return None
        needed.update(value for value in built.operands if value in inside)
        made.append((max(order[value] for value in results), built))
    kept = [
        (number, op)
        for number, op in enumerate(block.ops)
        if not op.results or op.results[0] not in inside
    ]
    return replace(block, ops=sort_topologically([*made, *kept]))


def _number_levels(block: Block, group: _ScoreGroup) -> dict[Value, int]:
    """Return, for each value, the number of times that the path to it leaves the group. A product
    of scores and a sum leaves it, too."""
    levels: dict[Value, int] = {}
    inside = {*group.members, *group.sums}
    for op in block.ops:
        is_member = bool(op.results) and op.results[0] in inside
        level = 0
        for value in op.uses():
            own = levels.get(value, 0)
            leaves = value in group.sums if is_member else value in inside
            level = max(level, own + leaves)
        for result in op.results:
            levels[result] = level
    return levels


class _ProductsBuilder:
    """Builds the operation of one level of a group."""

    def __init__(
        self,
        group: _ScoreGroup,
        levels: Mapping[Value, int],
        level: int,
        names: UniqueNames,
        convert_inside: bool,
    ) -> None:
        self.group, self.levels, self.level, self.names = group, levels, level, names
        self.convert_inside = convert_inside
        self.score_dims: Dims = tuple(range(len(non_unit_sizes(next(iter(group.members)).type))))
        self.inner: dict[tuple[Value, Dims | None], Value] = {}
        """The inner value for a value of the block around, and the dimensions of scores along which
        it is used, if it is computed outside of the group."""
        self.operands: list[Value] = []
        self.params: list[Value] = []
        self.ops: list[Op] = []
        self.read: set[Value] = set()
        """Values from outside of the group that copied operations read."""

    def build(self, results: Sequence[Value]) -> Op | None:
        """Return the operation that computes these results; `None` if there is none."""
        returns = tuple(self.value(result, self.score_dims) for result in results)
        block = Block(tuple(self.params), tuple(self.ops), returns)
        try:
            nest = build_product_nest(block)
        except TypeError:
            return None
        if not _is_worthwhile(nest):
            return None
        members = [self.group.members.get(value) or self.group.sums[value] for value in results]
        loc = next((op.loc for op in reversed(members) if op.loc), None)
        return Op(
            fused_products, tuple(self.operands), tuple(results), {}, (block,), loc, _explain(nest)
        )

    def value(self, value: Value, dims: Dims) -> Value:
        """Return the inner value for a value of the block around, whose dimensions are used along
        these dimensions of scores.

        A value from outside of the group, such as the positions that a mask compares, may be used
        along several: along rows and along columns.
        """
        op = self.group.members.get(value) or self.group.sums.get(value)
        key = value, (dims if op is None else None)
        if key not in self.inner:
            is_result = value in self.group.results and self.levels[value] < self.level
            maker = None if op or value in self.read else self.group.maker(value)
            read = None if maker is None else self.find_operands_of_copies(maker)
            if op is not None and not is_result:
                self.inner[key] = self.copy(op, self.score_dims)
            elif maker is not None and read is not None:
                self.read |= read
                self.inner[key] = self.copy(maker, dims)
            else:
                self.inner[key] = self.param(value)
        return self.inner[key]

    def param(self, value: Value) -> Value:
        """Return a new parameter."""
        inner = replace(value, name=self.names.fresh(value.name))
        self.params.append(inner)
        self.operands.append(value)
        return inner

    def matrix(self, value: Value) -> Value:
        """Return the inner value for a matrix from outside of the group."""
        maker = self.group.maker(value)
        if not self.convert_inside or maker is None or not _is_widening(maker):
            return self.param(value)
        result = replace(value, name=self.names.fresh(value.name))
        self.ops.append(
            replace(maker, operands=(self.param(maker.operands[0]),), results=(result,))
        )
        return result

    def copy(self, op: Op, dims: Dims) -> Value:
        """Append a copy of an operation, and of those that it depends on.

        Products have parameters of their own: a matrix may be used along different loops.
        """
        inside = {*self.group.members, *self.group.sums}
        if op.spec is broadcast:
            dims = _operand_dims(op, dims)
        operands = tuple(
            self.matrix(value)
            if op.spec is dot and value not in inside
            else self.value(value, dims)
            for value in op.operands
        )
        result = replace(op.result, name=self.names.fresh(op.result.name))
        self.ops.append(replace(op, operands=operands, results=(result,)))
        return result

    def find_operands_of_copies(self, op: Op) -> Set[Value] | None:
        """Return what an operation outside of the group is computed from if it is computed again
        inside; `None` if it is not, since it costs too much, or its operands are larger than its
        result."""
        if not _is_cheap(op):
            return None
        pending, copied, read = [op], {op}, set[Value]()
        while pending:
            for value in pending.pop().operands:
                maker = self.group.maker(value)
                if maker in copied:
                    continue
                if maker is None or not _is_cheap(maker) or len(copied) == MAX_COPIED_OPS:
                    read.add(value)
                else:
                    copied.add(maker)
                    pending.append(maker)
        is_smaller = sum(value.type.nbytes for value in read) <= op.result.type.nbytes
        return read if is_smaller else None


def _operand_dims(op: Op, dims: Dims) -> Dims:
    """Return the dimensions of scores along which the operand of a broadcast is used."""
    along = dict(zip(non_unit_dims(op.result.type), dims, strict=True))
    return tuple(along[op.attrs["dims"][dim]] for dim in non_unit_dims(op.operands[0].type))


def _is_widening(op: Op) -> bool:
    is_narrow = op.spec is convert and op.operands[0].type.dtype in NARROW_FLOATS
    return is_narrow and op.result.type.dtype == "f32"


def _is_cheap(op: Op) -> bool:
    if op.spec is constant:
        return _is_number(op)
    if op.spec is reshape:
        return is_unit_reshape(op)
    return op.spec in (broadcast, iota) or is_pointwise(op.spec)


def _is_worthwhile(nest: ProductNest) -> bool:
    matrices = [nest.row_and_column_matrix(op)[0] for op in nest.score_products]
    matrices += [nest.scores_and_matrix(op)[1] for op in nest.sums]
    features = max(nest.extents[nest.feature_loop(matrix)] for matrix in matrices)
    shortest = min(nest.extents[nest.row_loop], nest.extents[nest.column_loop])
    return shortest >= MIN_EXTENT and features <= MAX_FEATURES and 0 not in nest.extents


def _explain(nest: ProductNest) -> str:
    rows, columns = nest.extents[nest.row_loop], nest.extents[nest.column_loop]
    batch = prod(nest.extents[loop] for loop in nest.batch_loops)
    count = len(nest.score_products) + len(nest.sums)
    return f"{count} products of {batch} x {rows} rows and {columns} columns"
