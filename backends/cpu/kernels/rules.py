"""The rules of all operations with native kernels, and the layouts that their results prefer."""

from shardir.backends.cpu.kernel_api import Order, Rule
from shardir.backends.cpu.kernels import contraction_rules, elementwise, fft, linalg, movement_rules
from shardir.backends.cpu.kernels.selection.bool_search import DECIDING_BYTE, with_search

RULES: dict[str, Rule] = {
    **movement_rules.RULES,
    **elementwise.RULES,
    **contraction_rules.RULES,
    **linalg.RULES,
    **fft.RULES,
}
RULES.update({name: with_search(RULES[name]) for name in DECIDING_BYTE})

LAYOUT_RULES: dict[str, Order] = {**contraction_rules.LAYOUTS}
