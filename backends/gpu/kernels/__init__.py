"""Triton kernels of fused groups, as text.

`write_kernel(op, name)` returns a `Kernel`, or a `Refusal` if Triton cannot express the group; the
program then contains only the group's torch function. `functions()` has the helpers that kernels
call, `WITHOUT` lists the operations that the pass `fuse` excludes. `write_random(op, name)` writes
kernels that draw random bits. Start with `writing.py`, then `flat.py` and `tiled.py`.
"""

from shardir.backends.gpu.kernels.arithmetic import WITHOUT as WITHOUT
from shardir.backends.gpu.kernels.helpers import functions as functions
from shardir.backends.gpu.kernels.kernel import (
    Kernel as Kernel,
    Launch as Launch,
    Refusal as Refusal,
)
from shardir.backends.gpu.kernels.random_bits import write_random as write_random
from shardir.backends.gpu.kernels.sizes import Sizes as Sizes
from shardir.backends.gpu.kernels.writing import write_kernel as write_kernel
