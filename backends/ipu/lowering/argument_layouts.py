"""Tile mappings of arguments: the mapping that the matrix product of an argument prefers.

Such a product plans the layout of its operands; an argument with that layout need not be rearranged
in every step. The first product that uses an argument determines it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from shardir import ops
from shardir.backends.ipu.codegen.device_types import element_of, initializer_text
from shardir.backends.ipu.codegen.emitter import shuffle_view
from shardir.backends.ipu.lowering.contraction import ContractionLetters, is_transposed
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import FLOATS


@dataclass(frozen=True)
class ArgumentLayout:
    """An operand of a matrix product: its side, the shapes of both operands, and whether it is
    transposed.
    """

    side: str
    left: tuple[int, int]
    right: tuple[int, int]
    is_transposed: bool

    def text(self, value: Value) -> str:
        """Return the expression of a variable with this layout."""
        label = '"' + value.name.replace("\\", "\\\\").replace('"', '\\"') + '"'
        made = (
            f"poplin::createMatMulInput{self.side}(graph, {element_of(value.type).poplar}, "
            f"{initializer_text(self.left)}, {initializer_text(self.right)}, {label})"
        )
        return shuffle_view(made, (1, 0)) if self.is_transposed else made


def argument_layouts(block: Block) -> Mapping[Value, ArgumentLayout]:
    """Return the layouts of parameters that are direct operands of a matrix product."""
    layouts: dict[Value, ArgumentLayout] = {}
    params = set(block.params)
    for op in block.ops:
        if op.spec is ops.dot and op.operands[0].type.dtype in FLOATS:
            for side in (0, 1):
                value = op.operands[side]
                if (
                    value in params
                    and value not in layouts
                    and (found := _operand_layout(op, side))
                ):
                    layouts[value] = found
    return layouts


def _operand_layout(op: Op, place: int) -> ArgumentLayout | None:
    operands, result = op.attrs["dims"].split("->")
    terms, types = operands.split(","), [value.type for value in op.operands]
    letters = ContractionLetters.of(op.attrs["dims"])
    side = place
    if is_transposed(letters):
        terms, types, side = terms[::-1], types[::-1], 1 - place
        letters = ContractionLetters.of(f"{terms[0]},{terms[1]}->{result}")
    if [type.rank for type in types] != [2, 2]:
        return None
    if not len(letters.rows) == len(letters.columns) == len(letters.contracting) == 1:
        return None
    sizes = dict(zip(terms[0] + terms[1], (*types[0].shape, *types[1].shape), strict=True))
    left = (sizes[letters.rows], sizes[letters.contracting])
    right = (sizes[letters.contracting], sizes[letters.columns])
    turned = terms[side][0] != (letters.rows if side == 0 else letters.contracting)
    return ArgumentLayout("RHS" if side else "LHS", left, right, turned)
