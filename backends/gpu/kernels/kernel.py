"""What is written for one group.

An emitted program holds, for a group called `softmax`:

    @triton.jit                                     # Kernel.text: one kernel, or two where a
    def softmax_kernel(x_ptr, y_ptr, COLUMNS: ...): # reduction is done in two stages
        '''the IR of the group'''
        ...

    def softmax(x):                                 # written by the emitter
        if not compiled: return softmax_reference(x)
        y = torch.empty(...)                        # Kernel.launch: allocates results, and calls
        softmax_kernel[(64,)](x, y, COLUMNS=128, num_warps=4, enable_fp_fusion=False)
        return y                                    # Kernel.results
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

IMPORTS = ("import torch", "import triton", "import triton.language as tl")


@dataclass(frozen=True, slots=True)
class Launch:
    """One call of a kernel, for machines."""

    function: str
    grid: tuple[int, ...]
    pointers: Mapping[str, str]
    """What each parameter points to, as `triton.compile` calls it: `*fp32`."""
    constants: Mapping[str, int]
    num_warps: int
    options: Mapping[str, bool] = field(default_factory=lambda: {"enable_fp_fusion": False})
    """No multiply-add is rounded once that the IR rounds twice; libdevice, where it is called,
    knows subnormal numbers."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """The text of a group's kernels, and of their launch."""

    text: str
    """One or two `@triton.jit` functions, called `<name>_kernel` (and `<name>_parts`)."""
    launch: str
    """Lines without indentation: they allocate the results and call the kernels. A group without
    operands is launched on the `device` of this name."""
    operands: tuple[str, ...]
    """What the launch calls the operands of the group, in order: contiguous tensors of their
    shapes. A tensor given twice has two names."""
    results: tuple[str, ...]
    """The names that the launch gives to the results of the group, in order."""
    launches: tuple[Launch, ...]
    """What the launch calls."""
    helpers: tuple[str, ...] = ()
    """Functions that the kernels call, in the order to define them; see `functions`. A program
    defines each once."""
    imports: tuple[str, ...] = IMPORTS
    """Lines that the text, the launch and the helpers need."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a group has no kernel."""

    reason: str
