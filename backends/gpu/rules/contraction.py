"""Contractions and convolutions.

Floats use torch (cuBLAS, cuDNN). Integers, which matrix units do not multiply, are sums of exact
f64 products of 16-bit limbs.
"""

from shardir.backends.gpu.dtypes import TORCH_DTYPES
from shardir.backends.gpu.function_writer import FunctionWriter
from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.torch_text import list_text
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.module import Op
from shardir.ir.types import COMPLEX, INTEGERS
from shardir.ops.contraction.convolution_factors import parse_dims


@lowers("dot")
def _dot(w: FunctionWriter, op: Op, x: str, y: str) -> str:
    dims, dtype = op.attrs["dims"], op.result.type.dtype
    if op.operands[0].type.dtype != dtype:
        if (
            op.operands[0].type.dtype in NARROW_FLOATS
            and dtype == "f32"
            and _has_no_one_sided_sum(dims)
        ):
            product = _matmul(dims, x, y)
            if product and "@" in product:
                return w.call_library("multiply_widely", *product.split(" @ "))
            return w.call_library("contract_widely", f'"{dims}"', x, y)
        x, y = (f"{name}.to({TORCH_DTYPES[dtype]})" for name in (x, y))
    if dtype in INTEGERS:
        return w.call_library("contract_integers", f'"{dims}"', x, y)
    return _matmul(dims, x, y) or _einsum(dims, x, y)


def _has_no_one_sided_sum(dims: str) -> bool:
    """Return whether each dimension is in the result or in both operands."""
    operands, output = dims.split("->")
    left, right = operands.split(",")
    return all(d in output or (d in left and d in right) for d in left + right)


def _einsum(dims: str, x: str, y: str) -> str:
    """Return an einsum; the operand whose own dimensions come first in the result is its first."""
    operands, output = dims.split("->")
    left, right = operands.split(",")
    own = [d for d in output if (d in left) != (d in right)]
    if own and own[0] in right:
        return f'torch.einsum("{right},{left}->{output}", {y}, {x})'
    return f'torch.einsum("{dims}", {x}, {y})'


def _matmul(dims: str, x: str, y: str) -> str | None:
    """Return the contraction as a (batched) matrix product, or `None` if it is not one."""
    operands, output = dims.split("->")
    left, right = operands.split(",")
    if left == right and not output and len(left) == 1:
        return f"torch.dot({x}, {y})"
    if len(left) == 2 and right == left[1] and output == left[0]:
        return f"{x} @ {y}"
    both = [d for d in left if d in right and d in output]
    summed = [d for d in left if d in right and d not in output]
    rows = [d for d in left if d not in right]
    columns = [d for d in right if d not in left]
    if len(summed) != 1 or len(columns) != 1:
        return None
    if not both and left[-1:] == summed[0] and output == left[:-1] + columns[0] and left[:-1]:
        other = _matrix_text(y, right, "", summed[0], columns[0])
        return f"{x} @ {other}"
    if len(rows) != 1:
        return None
    if any(d not in output for d in rows + columns):
        return None
    batch, (i,), (k,), (j,) = "".join(both), rows, summed, columns
    if output == batch + j + i:
        x, y, left, right, i, j = y, x, right, left, j, i
    a = _matrix_text(x, left, batch, i, k)
    b = _matrix_text(y, right, batch, k, j)
    return f"{a} @ {b}" if a and b and output == batch + i + j else None


def _matrix_text(x: str, letters: str, batch: str, row: str, column: str) -> str | None:
    """Return an operand as (batched) row-by-column matrices, transposed if needed, or `None`."""
    if letters == batch + row + column:
        return x
    return f"{x}{'.mT' if batch else '.T'}" if letters == batch + column + row else None


@lowers("convolution")
def _convolution(w: FunctionWriter, op: Op, x: str, filter: str) -> str:
    """Lower `convolution` to torch's dimension order, with batch groups as feature groups."""
    attrs, to = op.attrs, op.result.type
    of, by, out = parse_dims(attrs["dims"])
    rank = len(of.spatial)
    groups, batch_groups = attrs.get("groups", 1), attrs.get("batch_groups", 1)
    if op.operands[0].type.dtype != to.dtype:
        x, filter = (f"{name}.to({TORCH_DTYPES[to.dtype]})" for name in (x, filter))
    if not to.size or not op.operands[0].type.size or not op.operands[1].type.size:
        shape = list_text(to.shape)
        return f"torch.zeros({shape}, dtype={TORCH_DTYPES[to.dtype]}, device=device)"
    x = _permute(x, (of.batch_or_inputs, of.features_or_outputs, *of.spatial))
    filter = _permute(filter, (by.features_or_outputs, by.batch_or_inputs, *by.spatial))
    if batch_groups > 1:
        x = w.call_library("batch_as_features", x, str(batch_groups))
    made = _write_convolution(w, op, x, filter, max(groups, batch_groups), rank)
    return _permute(
        made, _inverse_permutation((out.batch_or_inputs, out.features_or_outputs, *out.spatial))
    )


def _write_convolution(
    w: FunctionWriter, op: Op, x: str, filter: str, groups: int, rank: int
) -> str:
    attrs, dtype = op.attrs, op.result.type.dtype
    strides, padding = attrs["strides"], attrs["padding"]
    lhs, rhs = attrs["lhs_dilation"], attrs["rhs_dilation"]
    if dtype in (*INTEGERS, *COMPLEX) or not 1 <= rank <= 3:
        numbers = (list_text(n) for n in (strides, padding, lhs, rhs))
        return w.call_library("convolve_windows", x, filter, *numbers, str(groups))
    even = all(lo == hi >= 0 for lo, hi in padding)
    more = ""
    if any(step != 1 for step in lhs):
        x = w.call_library("spread_out", x, "0", f"[[0, 0], [0, 0], {list_text(padding)[1:-1]}]",
                   list_text((1, 1, *lhs)))  # fmt: skip
    elif even and any(lo for lo, _ in padding):
        more += f", padding={list_text(lo for lo, _ in padding)}"
    elif not even:
        pairs = [end for pair in reversed(padding) for end in pair]
        x = f"F.pad({x}, {list_text(pairs)})"
    if any(step != 1 for step in strides):
        more += f", stride={list_text(strides)}"
    if any(step != 1 for step in rhs):
        more += f", dilation={list_text(rhs)}"
    if groups != 1:
        more += f", groups={groups}"
    return f"F.conv{rank}d({x}, {filter}{more})"


def _permute(x: str, perm: tuple[int, ...]) -> str:
    return x if perm == tuple(range(len(perm))) else f"{x}.permute({list_text(perm)[1:-1]})"


def _inverse_permutation(perm: tuple[int, ...]) -> tuple[int, ...]:
    """Return the inverse of a permutation."""
    return tuple(perm.index(d) for d in range(len(perm)))
