"""Which operations there are kernels for, and how their results would best lie in memory."""

from shardir.backends.cpu.native import contraction, loops, matrices, moves
from shardir.backends.cpu.native.data import Order, Rule

RULES: dict[str, Rule] = {**moves.RULES, **loops.RULES, **contraction.RULES, **matrices.RULES}

ORDERS: dict[str, Order] = {**contraction.LAYOUTS}
