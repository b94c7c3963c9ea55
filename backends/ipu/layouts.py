"""Where arguments lie on the tiles: as the matrix product that takes them wants them.

Such a product plans the layout of its operands; an argument that lies so from the start need not be
rearranged in every step. The first product that takes an argument decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from shardir.backends.ipu.contraction import Letters, is_turned
from shardir.backends.ipu.emitter import shuffle_view
from shardir.backends.ipu.types import braces, element
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import FLOATS


@dataclass(frozen=True)
class Layout:
    """A matrix of a product: on which side, of which shapes, and how its dimensions are turned."""

    side: str
    left: tuple[int, int]
    right: tuple[int, int]
    turned: bool

    def text(self, value: Value) -> str:
        """The expression of a variable that lies so."""
        label = '"' + value.name.replace("\\", "\\\\").replace('"', '\\"') + '"'
        made = (
            f"poplin::createMatMulInput{self.side}(graph, {element(value.type).poplar}, "
            f"{braces(self.left)}, {braces(self.right)}, {label})"
        )
        return shuffle_view(made, (1, 0)) if self.turned else made


def argument_layouts(block: Block) -> Mapping[Value, Layout]:
    """The layouts of those parameters that a product of two matrices takes as they are."""
    layouts: dict[Value, Layout] = {}
    params = set(block.params)
    for op in block.ops:
        if op.name == "dot" and op.operands[0].type.dtype in FLOATS:
            for side in (0, 1):
                value = op.operands[side]
                if value in params and value not in layouts and (found := _layout(op, side)):
                    layouts[value] = found
    return layouts


def _layout(op: Op, place: int) -> Layout | None:
    operands, result = op.attrs["dims"].split("->")
    terms, types = operands.split(","), [value.type for value in op.operands]
    letters = Letters.of(op.attrs["dims"])
    side = place
    if is_turned(letters):
        terms, types, side = terms[::-1], types[::-1], 1 - place
        letters = Letters.of(f"{terms[0]},{terms[1]}->{result}")
    if [type.rank for type in types] != [2, 2]:
        return None
    if not len(letters.rows) == len(letters.columns) == len(letters.summed) == 1:
        return None
    sizes = dict(zip(terms[0] + terms[1], (*types[0].shape, *types[1].shape), strict=True))
    left = (sizes[letters.rows], sizes[letters.summed])
    right = (sizes[letters.summed], sizes[letters.columns])
    turned = terms[side][0] != (letters.rows if side == 0 else letters.summed)
    return Layout("RHS" if side else "LHS", left, right, turned)
