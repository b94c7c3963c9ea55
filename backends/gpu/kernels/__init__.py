"""Triton kernels of fused groups, as text.

`write_kernel(op, name)` returns a `KernelText`, or a `KernelRefusal` if Triton cannot express the
group; the program then contains only the group's torch function. `helper_functions()` has the
functions that kernels call, `UNFUSED_OPERATIONS` lists the operations that the pass `fuse`
excludes. `write_random_kernel(op, name)` writes kernels that draw random bits. Start with
`kernel_selection.py`, then `flat.py` and `tiled_reduction.py`.
"""

from shardir.backends.gpu.kernels.arithmetic import UNFUSED_OPERATIONS as UNFUSED_OPERATIONS
from shardir.backends.gpu.kernels.fused_products.products_kernel import (
    find_sum_operands as find_sum_operands,
)
from shardir.backends.gpu.kernels.helpers import helper_functions as helper_functions
from shardir.backends.gpu.kernels.kernel import (
    KernelLaunch as KernelLaunch,
    KernelRefusal as KernelRefusal,
    KernelText as KernelText,
)
from shardir.backends.gpu.kernels.kernel_selection import write_kernel as write_kernel
from shardir.backends.gpu.kernels.random_kernel import write_random_kernel as write_random_kernel
from shardir.backends.gpu.kernels.tile_sizes import TileSizes as TileSizes
