"""The rules of all operations with native kernels, and the layouts that their results prefer."""

from shardir.backends.cpu.native import contraction, loops, matrices, moves, transforms
from shardir.backends.cpu.native.data import Order, Rule
from shardir.backends.cpu.native.moves.scanning import WANTED, or_else

RULES: dict[str, Rule] = {
    **moves.RULES,
    **loops.RULES,
    **contraction.RULES,
    **matrices.RULES,
    **transforms.RULES,
}
RULES.update({name: or_else(RULES[name]) for name in WANTED})

ORDERS: dict[str, Order] = {**contraction.LAYOUTS}
