"""Kernels that move data: copies between layouts, gather and scatter, scans, windows, sorting.

Input: an operation with strided views. Output: phases. `copy.copy_phases` copies one view to
another of the same shape with any strides; most operations here are that and a view
(`view_transforms`).
"""

from shardir.backends.cpu.kernels.data_movement.copy import copy_phases as copy_phases
from shardir.backends.cpu.kernels.movement_rules import RULES as RULES
