"""What is written for one group.

An emitted program holds, for a group called `softmax`:

    @triton.jit                                   # Kernel.text: one kernel, or two where a
    def softmax_kernel(x, y, BLOCK: tl.constexpr):  # reduction is done in two stages
        '''the IR of the group'''
        ...

    def softmax(x):                               # written by the emitter
        if not compiled: return softmax_reference(x)
        y = torch.empty(...)                      # Kernel.launch: allocates the results, and calls
        softmax_kernel[(64,)](x, y, BLOCK=128, num_warps=4, enable_fp_fusion=False)
        return y                                  # Kernel.results
"""

from dataclasses import dataclass

from shardir.ir import Op


@dataclass(frozen=True, slots=True)
class Kernel:
    """The text of a group's kernels, and of their launch."""

    text: str
    """One or two `@triton.jit` functions, called `<name>_kernel` (and `<name>_parts`)."""
    launch: str
    """Lines without indentation: they allocate the results and call the kernels."""
    operands: tuple[str, ...]
    """What the launch calls the operands of the group, in order: contiguous tensors of their
    shapes. A tensor given twice has two names."""
    results: tuple[str, ...]
    """The names that the launch gives to the results of the group, in order."""
    helpers: tuple[str, ...] = ()
    """Functions that the kernels call, in the order to define them: `helper_text(name)`. A program
    defines each once."""
    imports: tuple[str, ...] = ("import torch", "import triton", "import triton.language as tl")
    """Lines that the text, the launch and the helpers need."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a group has no kernel."""

    reason: str


def write_kernel(op: Op, name: str) -> Kernel | Refusal:
    """The kernel of a `fused` operation.

    Its functions are called after `name`, a legal identifier that is the only such one of the
    program. Operands and results are contiguous tensors of the torch types that bear the names of
    their element types (bool as `torch.bool`).
    """
    return Refusal(f"{op.name} has no kernel yet")


def helper_text(name: str) -> str:
    """The text of a function that kernels call."""
    raise KeyError(name)
