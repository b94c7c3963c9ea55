"""Control flow: operations with blocks.

Blocks use values of the blocks around them freely; such values are the constants of a loop and are
no operands. What control flow means is in `shardir.interpret`; how its gradient is made, in
`shardir.passes.differentiate`.

An edge ties together the values that are one value at different times, which a compiler wants to
place alike. What flows in comes from `sources`; `targets` show it. In a scan the slice of a stacked
operand is the parameter of the body, and the body's result is a slice of a stacked result; there
the stacked value has one more dimension in front, which no other value of the edge has.
"""

from collections.abc import Sequence

from shardir.ir import Block, Edge, Op, Value
from shardir.opset import define
from shardir.types import TensorType

Types = tuple[TensorType, ...]


def _same(what: str, values: Sequence[Value], wanted: Sequence[TensorType]) -> None:
    types = [value.type for value in values]
    if types != list(wanted):
        raise TypeError(f"{what} ({_list(types)}), wanted ({_list(wanted)})")


def _list(types: Sequence[TensorType]) -> str:
    return ", ".join(map(str, types))


def _while_type(*inits: TensorType, result: object, blocks: tuple[Block, ...]) -> Types:
    if len(blocks) != 2:
        raise TypeError(f"has two blocks, a condition and a body, got {len(blocks)}")
    condition, body = blocks
    _same("its condition takes", condition.params, inits)
    _same("its condition returns", condition.returns, [TensorType((), "bool")])
    _same("its body takes", body.params, inits)
    _same("its body returns", body.returns, inits)
    return inits


def _while_edges(op: Op) -> tuple[Edge, ...]:
    condition, body = op.blocks
    return tuple(
        Edge((op.operands[i], body.returns[i]), (result, condition.params[i], body.params[i]))
        for i, result in enumerate(op.results)
    )


while_ = define("while", type=_while_type, edges=_while_edges, blocks=2)
"""The body applied to the carried values as long as the condition holds of them."""


def _scan_type(
    *operands: TensorType,
    result: object,
    blocks: tuple[Block, ...],
    carries: int,
    length: int,
    reverse: bool = False,
) -> Types:
    if len(blocks) != 1:
        raise TypeError(f"has one block, got {len(blocks)}")
    if length < 0:
        raise TypeError(f"length={length} must be at least 0")
    if not 0 <= carries <= len(operands):
        raise TypeError(f"carries={carries} is not within its {len(operands)} operands")
    (body,) = blocks
    inits, stacked = operands[:carries], operands[carries:]
    for x in stacked:
        if x.rank == 0 or x.shape[0] != length:
            raise TypeError(f"takes slices of {x}, whose first dimension is not length={length}")
    _same("its body takes", body.params, (*inits, *(x.with_shape(x.shape[1:]) for x in stacked)))
    _same("its body carries on", body.returns[:carries], inits)
    outs = (value.type for value in body.returns[carries:])
    return (*inits, *(y.with_shape((length, *y.shape)) for y in outs))


def _scan_edges(op: Op) -> tuple[Edge, ...]:
    """Carried values; then stacked operands, which the body's parameter owns; then stacked results.

    The results own the edges they are on.
    """
    (body,) = op.blocks
    n = op.attrs["carries"]
    carried = [
        Edge((op.operands[i], body.returns[i]), (op.results[i], body.params[i])) for i in range(n)
    ]
    taken = [
        Edge((x,), (param,), stacked=(x,))
        for x, param in zip(op.operands[n:], body.params[n:], strict=True)
    ]
    made = [
        Edge((value,), (result,), stacked=(result,))
        for value, result in zip(body.returns[n:], op.results[n:], strict=True)
    ]
    return (*carried, *taken, *made)


scan = define("scan", type=_scan_type, edges=_scan_edges, blocks=1)
"""The body applied `length` times, from the last slice to the first if `reverse`.

Its first `carries` operands are carried from one application to the next, the others are taken
apart along their first dimension. The body gives the carried values on and returns slices of the
other results, each at the place of the slices it was given.
"""


def _case_type(index: TensorType, *rest: TensorType, result: object, blocks: tuple[Block, ...]
               ) -> Types:  # fmt: skip
    if rest:
        raise TypeError("takes only the index; its branches use other values directly")
    if index.rank or index.dtype not in ("bool", "i32"):
        raise TypeError(f"its index is i32[] or bool[], got {index}")
    if not blocks:
        raise TypeError("needs at least one branch")
    if index.dtype == "bool" and len(blocks) != 2:
        raise TypeError(f"a bool chooses between two branches, got {len(blocks)}")
    types = tuple(value.type for value in blocks[0].returns)
    for number, branch in enumerate(blocks):
        if branch.params:
            raise TypeError(f"its branches take no parameters, branch {number} takes some")
        if number:
            _same(f"branch {number} returns", branch.returns, types)
    return types


def _case_edges(op: Op) -> tuple[Edge, ...]:
    return tuple(
        Edge(tuple(branch.returns[i] for branch in op.blocks), (result,))
        for i, result in enumerate(op.results)
    )


case = define("case", type=_case_type, edges=_case_edges, blocks=-1)
"""The branch that `index` names (0 and 1 for false and true); the last one if there is none."""
