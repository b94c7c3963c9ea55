"""Kernels that move data: copies between layouts, lookups, running combinations, windows, order.

`copying.copy_phases` brings the elements of one view to another of the same shape, whatever their
strides; most operations here are that and a view (`views`).
"""

from shardir.backends.cpu.native.moves.copying import copy_phases as copy_phases
from shardir.backends.cpu.native.moves.rules import RULES as RULES
