"""Triton kernels of groups: `fused` operations as text.

`write_kernel(op, name)` gives a `Kernel`, or a `Refusal` where Triton has no words for the group;
a torch program of the group then stands alone. `functions()` has what kernels call,
`WITHOUT` the operations that the pass `fuse` had better leave alone. `write_random(op, name)` does
the same for operations that draw random bits.
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
