"""Replace sums over masked diagonals by sums over strided slices.

before: `%0 = iota(dim=0) : i32[9, 9]`, `%1 = iota(dim=1) : i32[9, 9]`
        `%2 = eq(%0, %1) : bool[9, 9]`, `%3 = select(%2, %x, %zero) : f32[9, 9]`
        `%4 = sum(%3, dims=[0, 1]) : f32[]`
after:  `%5 = reshape(%x) : f32[81]`, `%6 = slice(%5, starts=[0], strides=[10]) : f32[9]`
        `%4 = sum(%6, dims=[0]) : f32[]`

`trace` has the form of a mask because masks are easy to partition. In the row-major order of a
matrix the elements of a diagonal have a stride of one row and one column. The sum may add in
another order. Unused masks remain for `dce`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shardir import ops
from shardir.ir.builder import Builder
from shardir.ir.module import Function, Module, Op, Value
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import rewrite_each


@dataclass(frozen=True)
class FoldDiagonals(Pass, name="fold-diagonals"):
    """Replace sums over masked diagonals by sums over slices."""

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(map(_rewrite_function, module.functions)))


def _rewrite_function(function: Function) -> Function:
    if not any(op.spec is ops.iota for op in function.body.walk()):
        return function
    return rewrite_each(function, ops.sum_, _append_sum_of_diagonal)


def _append_sum_of_diagonal(b: Builder, op: Op, makers: Mapping[Value, Op]) -> bool:
    """Append the replacement of a sum if its operand is a masked diagonal."""
    select = makers.get(op.operands[0])
    dims = op.attrs["dims"]
    if select is None or select.spec is not ops.select or len(dims) != 2 or dims[1] != dims[0] + 1:
        return False
    mask, x, nothing = select.operands
    zero = makers.get(nothing)
    if zero is None or zero.spec is not ops.constant or zero.attrs["value"] != 0:
        return False
    offset = _diagonal_offset(mask, dims, makers)
    if offset is None:
        return False
    rows, columns = (x.type.shape[d] for d in dims)
    length = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    if length <= 0:
        return False
    wide = None
    converted = makers.get(x)
    if converted is not None and converted.spec is ops.convert:
        wide, x = x.type.dtype, converted.operands[0]
    first, shape = dims[0], x.type.shape
    before, after = shape[:first], shape[first + 2 :]
    line = b.reshape(x, result=x.type.with_shape((*before, rows * columns, *after)))
    start = offset if offset >= 0 else -offset * columns
    diagonal = b.slice(
        line,
        starts=(*[0] * len(before), start, *[0] * len(after)),
        strides=(*[1] * len(before), columns + 1, *[1] * len(after)),
        result=x.type.with_shape((*before, length, *after)),
    )
    if wide is not None:
        diagonal = b.convert(diagonal, result=diagonal.type.with_dtype(wide))
    b.ops.append(replace(op, operands=(diagonal,), attrs={**op.attrs, "dims": (first,)}))
    return True


def _diagonal_offset(mask: Value, dims: tuple[int, ...], makers: Mapping[Value, Op]) -> int | None:
    """Return the offset of the diagonal that a mask selects in two dimensions, else `None`."""
    op = makers.get(mask)
    if op is not None and op.spec is ops.broadcast:
        along = tuple(op.attrs["dims"])
        if any(d not in along for d in dims):
            return None
        dims = tuple(map(along.index, dims))
        op = makers.get(op.operands[0])
    if op is None or op.spec is not ops.eq:
        return None
    sides = [_match_iota(value, makers) for value in op.operands]
    by_dim = dict(side for side in sides if side is not None)
    if set(by_dim) != set(dims):
        return None
    return by_dim[dims[0]] - by_dim[dims[1]]


def _match_iota(value: Value, makers: Mapping[Value, Op]) -> tuple[int, int] | None:
    """Return the dimension of an iota and its first value, else `None`."""
    op, begin = makers.get(value), 0
    if op is not None and op.spec in (ops.add, ops.sub):
        step = makers.get(op.operands[1])
        number = step.attrs["value"] if step is not None and step.spec is ops.constant else None
        if type(number) is not int:
            return None
        begin = number if op.spec is ops.add else -number
        op = makers.get(op.operands[0])
    if op is None or op.spec is not ops.iota or value.type.dtype not in ("i32", "i64"):
        return None
    return op.attrs["dim"], begin
