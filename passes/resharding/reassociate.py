"""Reassociate reshards with transposes and concatenations.

A reshard moves above a transpose if the operand of the transpose is resharded alike for another
use:

before: `%w.unsharded = reshard(%w)`, `%t = transpose(%w, perm=[1, 0])`,
        `%t.unsharded = reshard(%t)`
after:  `%w.unsharded = reshard(%w)`, `%w.unsharded.1 = reshard(%w)`,
        `%t.unsharded = transpose(%w.unsharded.1)`

The two equal reshards are then merged (`shardir.passes.resharding.share_reshards`): an embedding
that is both looked up and multiplied with, transposed, is gathered once.

A reshard moves above a concatenation if its distinct operands have fewer elements than the result:

before: `%c = concatenate(%x, %x, dim=0)`, `%c.unsharded = reshard(%c)`
after:  `%x.unsharded = reshard(%x)`,
        `%c.unsharded = concatenate(%x.unsharded, %x.unsharded, dim=0)`

An operand that every device can compute by itself, such as a mask or padding, has no elements to
gather. It is computed again without its axes:

before: `%i = iota(dim=0) : i32[64@x]`, `%p = mul(%i, %i) : i32[64@x]`,
        `%c = concatenate(%x, %p, dim=0)`, `%c.unsharded = reshard(%c)`
after:  `%x.unsharded = reshard(%x)`, `%i.unsharded = iota(dim=0) : i32[64@-]`,
        `%p.unsharded = mul(%i.unsharded, %i.unsharded) : i32[64@-]`,
        `%c.unsharded = concatenate(%x.unsharded, %p.unsharded, dim=0)`

A diagonal of matrices whose columns are sharded is a masked sum of each row, so that the devices
send the diagonal instead of the matrices:

before: `%w.unsharded = reshard(%w) : f32[8@-, 8@-]`, `%l = reshape(%w.unsharded) : f32[64]`,
        `%d = slice(%l, starts=[0], strides=[9]) : f32[8]` with `%w: f32[8@-, 8@x]`
after:  `%m = select(%mask, %bits, %zero) : u32[8@-, 8@x]`,
        `%s = sum(%m, dims=[1]) : u32[8@-] unreduced(x)`, `%s.sum = reshard(%s)`,
        `%d = bitcast(%s.sum) : f32[8]`

The sum adds the bits as integers, which keeps negative zeros and NaNs as they are.
"""

from dataclasses import replace

from shardir import ops
from shardir.ir.builder import Builder
from shardir.ir.dtypes import DTYPE_INFO, FLOATS, INTEGERS, UNSIGNED_BY_BITS
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Op, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import Sharding
from shardir.passes.def_use import UNANALYZED_REGIONS, DefUse, analyze_def_use
from shardir.passes.resharding.cost import sharding_or_unsharded
from shardir.passes.resharding.planner import same_placement
from shardir.passes.resharding.reshard import sharding_annotation
from shardir.passes.rewriting import merge_in_mesh_order, used_names

MAX_RECOMPUTED_OPERATIONS = 16
"""The maximum number of operations that are repeated instead of a gather of their result."""


_BITS = {
    name: UNSIGNED_BY_BITS[DTYPE_INFO[name].bits] if name in FLOATS else name
    for name in FLOATS + INTEGERS
    if DTYPE_INFO[name].bits >= 8 and DTYPE_INFO[name].bits in UNSIGNED_BY_BITS
}
"""The integers as which the elements of a diagonal are added."""


class ReshardReassociation:
    """Rewrites one function."""

    def __init__(self, function: Function, mesh: Mesh) -> None:
        self.old, self.mesh, self.axes = function, mesh.name, mesh
        self.uses = analyze_def_use(function)
        self.names = used_names(function)
        self.changed = False

    def rewrite_function(self) -> Function:
        body = self.rewrite_block(self.old.body)
        return replace(self.old, body=body) if self.changed else self.old

    def rewrite_block(self, block: Block) -> Block:
        new_ops: list[Op] = []
        for op in block.ops:
            if op.blocks and op.spec not in UNANALYZED_REGIONS:
                op = replace(op, blocks=tuple(map(self.rewrite_block, op.blocks)))
            if op.spec is ops.slice_ and (masked := self.mask_diagonal(op)) is not None:
                self.changed = True
                new_ops += masked
                continue
            turn = self.uses.maker.get(op.operands[0]) if op.spec is ops.reshard else None
            if (
                turn is not None
                and turn.spec is ops.concatenate
                and self.is_operand_gather_cheaper(turn, op)
            ):
                self.changed = True
                new_ops.extend(self.concatenate_resharded(turn, op))
                continue
            if (
                turn is None
                or turn.spec is not ops.transpose
                or not self.has_equal_reshard(turn, op)
            ):
                new_ops.append(op)
                continue
            self.changed = True
            source = turn.operands[0]
            moved = replace(
                source, name=self.names.fresh(f"{source.name}.unsharded"),
                sharding=sharding_annotation(self.operand_sharding(turn, op)),
            )  # fmt: skip
            new_ops.append(replace(op, operands=(source,), results=(moved,)))
            new_ops.append(replace(turn, operands=(moved,), results=op.results))
        return Block(block.params, tuple(new_ops), block.returns)

    def is_operand_gather_cheaper(self, joined: Op, move: Op) -> bool:
        """Return whether gathering the operands of a concatenation moves less than gathering it.

        The reshard must be the only use of the concatenation, and must only unshard the
        concatenated dimension.
        """
        dim: int = joined.attrs["dim"]
        source, target = (sharding_or_unsharded(v, self.mesh) for v in (joined.result, move.result))
        others = [d for d in range(len(target.dims)) if d != dim]
        if (
            not source.dims[dim].axes
            or target.dims[dim].axes
            or source.unreduced
            or target.unreduced
            or any(source.dims[d].axes != target.dims[d].axes for d in others)
            or list(self.uses.users.get(joined.result, ())) != [move]
        ):
            return False
        gathered = sum(
            operand.type.size
            for operand in dict.fromkeys(joined.operands)
            if self.local_operations(operand) is None
        )
        return gathered < joined.result.type.size

    def concatenate_resharded(self, joined: Op, move: Op) -> list[Op]:
        """Return reshards of the operands, one per distinct operand, and the concatenation of their
        results."""
        target = sharding_or_unsharded(move.result, self.mesh)
        moves: list[Op] = []
        moved: dict[Value, Value] = {}
        for operand in dict.fromkeys(joined.operands):
            if (local := self.local_operations(operand)) is not None:
                moves += self.recompute(local, target)
                moved[operand] = moves[-1].result
                continue
            moved[operand] = self.rename_value(operand, target)
            moves.append(replace(move, operands=(operand,), results=(moved[operand],)))
        operands = tuple(moved[operand] for operand in joined.operands)
        return [*moves, replace(joined, operands=operands, results=move.results)]

    def mask_diagonal(self, op: Op) -> list[Op] | None:
        """Return the operations that sum over the masked columns of a resharded matrix, if `op` is
        a diagonal of it and the matrix is not used otherwise."""
        flat = self.uses.maker.get(op.operands[0])
        move = self.uses.maker.get(flat.operands[0]) if flat and flat.spec is ops.reshape else None
        if move is None or move.spec is not ops.reshard or not self.is_read_by_diagonals(move):
            return None
        x = move.operands[0]
        source, target = (sharding_or_unsharded(v, self.mesh) for v in (x, move.result))
        result = sharding_or_unsharded(op.result, self.mesh)
        row = x.type.rank - 2
        if (
            x.type.dtype not in _BITS
            or not source.dims[-1].axes
            or target.dims[-1].axes
            or [dim.axes for dim in target.dims[:-1]] != [dim.axes for dim in result.dims]
            or source.unreduced
            or target.unreduced
        ):
            return None
        begin, first_column = divmod(op.attrs["starts"][-1], x.type.shape[-1])
        offset = first_column - begin
        b = Builder(self.names, op.loc)
        b.why = move.why
        here = sharding_annotation(source)
        bits = x.type.with_dtype(_BITS[x.type.dtype])
        numbers = x.type.with_dtype("i32")
        first = b.emit(OPS["iota"], dim=row, result=numbers, sharding=here)
        second = b.emit(OPS["iota"], dim=row + 1, result=numbers, sharding=here)
        distance = b.emit(OPS["constant"], value=offset, result=numbers, sharding=here)
        column = b.emit(OPS["add"], first, distance, sharding=here)
        mask = b.emit(OPS["eq"], column, second, sharding=here)
        words = x if bits == x.type else b.emit(OPS["bitcast"], x, result=bits, sharding=here)
        zero = b.emit(OPS["constant"], value=0, result=bits, sharding=here)
        masked = b.emit(OPS["select"], mask, words, zero, sharding=here)
        rows = replace(source, dims=source.dims[:-1])
        pending = merge_in_mesh_order(source.dims[-1].axes, self.axes)
        placed = replace(target, dims=target.dims[:-1])
        partial = b.emit(
            OPS["sum"],
            masked,
            dims=(row + 1,),
            sharding=replace(rows, unreduced=pending, reduction="add"),
        )
        shard = b.emit(OPS["reshard"], partial, sharding=sharding_annotation(placed))
        if shard.type.shape != op.result.type.shape:
            starts = (*[0] * row, begin)
            part = shard.type.with_shape(op.result.type.shape)
            ones = (1,) * (row + 1)
            shard = b.emit(OPS["slice"], shard, starts=starts, strides=ones, result=part,
                           sharding=op.result.sharding)  # fmt: skip
        if bits != x.type:
            b.emit(OPS["bitcast"], shard, result=op.result.type)
        last = b.ops.pop()
        return [*b.ops, replace(last, results=op.results)]

    def is_read_by_diagonals(self, move: Op) -> bool:
        """Return whether all uses of a resharded matrix are slices of one diagonal each."""
        return all(
            isinstance(flat, Op) and is_read_by_diagonals(flat, self.uses)
            for flat in self.uses.users.get(move.result, ())
        )

    def local_operations(self, value: Value) -> list[Op] | None:
        """Return the operations that every device can repeat to compute `value`, which the last one
        defines.

        Return `None` if the value depends on sharded data, or on more than
        `MAX_RECOMPUTED_OPERATIONS` operations.
        """
        found = set[Op]()
        pending = [value]
        while pending:
            op = self.uses.maker.get(pending.pop())
            if op in found:
                continue
            if op is None or len(found) == MAX_RECOMPUTED_OPERATIONS or not self.is_local(op):
                return None
            found.add(op)
            pending += op.operands if op.spec.elementwise else ()
        return [op for op in self.uses.maker.values() if op in found]

    def is_local(self, op: Op) -> bool:
        """Return whether every device can compute all elements of the result of an operation, if it
        can compute those of the operands of the same shape."""
        if op.spec.elementwise:
            return all(operand.type.shape == op.result.type.shape for operand in op.operands)
        if op.spec is ops.broadcast:
            (operand,) = op.operands
            is_complete = not sharding_or_unsharded(operand, self.mesh).unreduced
            return is_complete and not operand.type.rank
        return op.spec in (ops.iota, ops.constant)

    def recompute(self, ops: list[Op], target: Sharding) -> list[Op]:
        """Return copies of operations of one shape, whose results have the sharding `target`."""
        copies: dict[Value, Value] = {}
        new_ops: list[Op] = []
        for op in ops:
            copies[op.result] = self.rename_value(op.result, target)
            operands = tuple(copies.get(operand, operand) for operand in op.operands)
            new_ops.append(replace(op, operands=operands, results=(copies[op.result],)))
        return new_ops

    def rename_value(self, value: Value, sharding: Sharding) -> Value:
        """Return a value like `value` with another sharding, under a new name."""
        name = self.names.fresh(f"{value.name}.unsharded")
        return replace(value, name=name, sharding=sharding_annotation(sharding))

    def operand_sharding(self, turn: Op, move: Op) -> Sharding:
        """Return the sharding of the operand of a transpose that leads to the target sharding of
        its result."""
        target = sharding_or_unsharded(move.result, self.mesh)
        perm: tuple[int, ...] = turn.attrs["perm"]
        return replace(target, dims=tuple(target.dims[perm.index(d)] for d in range(len(perm))))

    def has_equal_reshard(self, turn: Op, move: Op) -> bool:
        """Return whether the operand of a transpose is resharded to the same sharding for another
        use."""
        sharding = self.operand_sharding(turn, move)
        return not sharding.unreduced and any(
            isinstance(use, Op)
            and use.spec is ops.reshard
            and same_placement(sharding_or_unsharded(use.result, self.mesh), sharding)
            for use in self.uses.users.get(turn.operands[0], ())
        )


def is_read_by_diagonals(flat: Op, uses: DefUse) -> bool:
    """Return whether an operation reshapes matrices to rows of elements, and all its uses are
    slices of one diagonal each."""
    if flat.spec is not ops.reshape or flat.operands[0].type.rank < 2:
        return False
    *batch, _, columns = flat.operands[0].type.shape
    if columns < 2 or flat.result.type.shape[:-1] != tuple(batch):
        return False
    return all(
        isinstance(use, Op)
        and use.spec is ops.slice_
        and use.attrs["strides"] == (*[1] * len(batch), columns + 1)
        and use.result.type.shape[:-1] == tuple(batch)
        # The elements after the last column would belong to another diagonal.
        and use.attrs["starts"][-1] % columns + use.result.type.shape[-1] <= columns
        for use in uses.users.get(flat.result, ())
    )
