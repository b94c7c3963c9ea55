"""Triton kernels of groups: `fused` operations as text.

`write_kernel(op, name)` gives a `Kernel`, or a `Refusal` where Triton has no words for the group;
a torch program of the group then stands alone. See `shardir.backends.gpu.kernels.kernel`.
"""

from shardir.backends.gpu.kernels.kernel import (
    Kernel as Kernel,
    Refusal as Refusal,
    write_kernel as write_kernel,
)
