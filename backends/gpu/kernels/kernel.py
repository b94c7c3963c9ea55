"""The texts emitted for one group.

An emitted program contains, for a group named `softmax`:

    @triton.jit                                     # text: one kernel, or two where a reduction
    def softmax_kernel(x_ptr, y_ptr, COLUMNS: ...): # is done in two stages
        '''the IR of the group'''
        ...

    def softmax(x):                                 # KernelText.launch_function
        if not compiled: return softmax_reference(x)
        y = torch.empty(...)                        # launch: allocates results, and calls
        softmax_kernel[(64,)](x, y, COLUMNS=128, num_warps=4, enable_fp_fusion=False)
        return y                                    # results
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

KERNEL_IMPORTS = ("import torch", "import triton", "import triton.language as tl")


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One call of a kernel, in structured form."""

    function: str
    grid: tuple[int, ...]
    pointers: Mapping[str, str]
    """The type of each pointer parameter in the notation of `triton.compile`: `*fp32`."""
    constants: Mapping[str, int]
    num_warps: int
    options: Mapping[str, bool | int] = field(default_factory=lambda: {"enable_fp_fusion": False})
    """Multiply-adds are not fused, because the IR rounds twice. `enable_reflect_ftz=False`, for
    kernels that call libdevice, keeps subnormal numbers."""


@dataclass(frozen=True, slots=True)
class KernelText:
    """The text of a group's kernels and of their launch."""

    text: str
    """One or two `@triton.jit` functions, named `<name>_kernel` (and `<name>_parts`)."""
    launch: str
    """Lines without indentation that allocate the results and call the kernels. A group without
    operands is launched on the variable `device`."""
    operands: tuple[str, ...]
    """Names of the group's operands in the launch, in order: contiguous tensors of their
    shapes. A tensor passed twice has two names."""
    results: tuple[str, ...]
    """Names of the group's results in the launch, in order."""
    launches: tuple[KernelLaunch, ...]
    """The kernel calls of the launch."""
    helpers: tuple[str, ...] = ()
    """Helper functions that the kernels call, in the order of definition; see `helpers`. A
    program defines each once."""
    imports: tuple[str, ...] = KERNEL_IMPORTS
    """Import statements that the text, the launch and the helpers need."""
    may_exceed_shared_memory: bool = False
    """True if a kernel may need more shared memory than some GPUs have; on these, the launch calls
    the torch reference."""

    def launch_function(self, name: str) -> str:
        """Return the text of the function `name`, which launches the kernels on contiguous tensors.

        On tensors that are not on a GPU, it calls the torch reference instead.
        """
        operands = ", ".join(self.operands)
        launch = self.launch.splitlines()
        if self.may_exceed_shared_memory:
            launch = [
                f"{name}_operands = ({operands})",
                "try:",
                *(f"    {line}" for line in launch),
                "except triton.OutOfResources:  # The GPU has too little shared memory.",
                f"    return {name}_reference(*{name}_operands)",
            ]
        lines = [
            f"def {name}({operands}):",
            f"    if not ({self.operands[0]}.is_cuda or INTERPRETED):",
            f"        return {name}_reference({operands})",
            *(f"    {line}" for line in _make_contiguous(self.operands)),
            *(f"    {line}" if line else "" for line in launch),
            f"    return {', '.join(self.results)}",
        ]
        return "\n".join(lines)


def _make_contiguous(operands: Sequence[str]) -> Sequence[str]:
    """Return the lines that make the operands contiguous, as kernels require."""
    if len(operands) <= 2:
        return [f"{x} = {x}.contiguous()" for x in operands]
    names = ", ".join(operands)
    return [f"{names} = (x.contiguous() for x in ({names}))"]


@dataclass(frozen=True, slots=True)
class KernelRefusal:
    """The reason why a group has no kernel."""

    reason: str
