"""Make torch on CPUs reject the operations that it has no GPU kernels for.

torch has more kernels for CPUs than for GPUs. `with restrict_to_gpu_kernels():` raises
`AssertionError` for an operation that has no GPU kernel for the element type of its operands:
almost all operations on unsigned integers of more than 8 bits (as in `"index_cuda" not implemented
for 'UInt16'`), and matrix products of integers. With `allow_host_reads=False` it also raises for
operations that copy results to the host, which a CUDA graph cannot contain.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WIDE_UNSIGNED_DTYPES = (torch.uint16, torch.uint32, torch.uint64)
CREATION_OPS = (
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "fill_", "zero_"),
    *("zeros", "zeros_like", "ones_like", "full", "full_like", "new_full", "new_zeros"),
    *("lift_fresh", "set_"),
)
COPY_OPS = ("copy_", "clone", "_to_copy", "_local_scalar_dense")
PRODUCT_OPS = ("mm", "bmm", "addmm", "baddbmm", "mv", "dot", "vdot", "convolution")
ORDERING_OPS = ("argmax", "argmin", "cummax", "cummin", "scatter_reduce", "sort")
HOST_READ_OPS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero")
COLLECTIVES_NAMESPACE = "c10d"


def restrict_to_gpu_kernels(allow_host_reads: bool = True) -> AbstractContextManager[Any]:
    """Return a context in which torch has only the kernels that it has on GPUs."""

    def dispatch(
        mode: Any,
        func: Any,
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, result)) if isinstance(x, torch.Tensor)]
        reason = _missing_kernel_reason(func, {x.dtype for x in tensors})
        assert not reason, f"{func} {reason}"
        assert allow_host_reads or func.overloadpacket.__name__ not in HOST_READ_OPS, (
            f"{func} makes the host wait"
        )
        return result

    mode: AbstractContextManager[Any] = type(
        "RestrictToGPUKernels", (TorchDispatchMode,), {"__torch_dispatch__": dispatch}
    )()
    return mode


def _missing_kernel_reason(func: Any, dtypes: set[torch.dtype]) -> str:
    """Return why torch has no such kernel on GPUs, or an empty string if it has one."""
    name = func.overloadpacket.__name__
    if func.namespace == COLLECTIVES_NAMESPACE:
        return ""
    wide_unsigned = dtypes.intersection(WIDE_UNSIGNED_DTYPES)
    if wide_unsigned and not (
        func.is_view or name in (*CREATION_OPS, *COPY_OPS, "_unsafe_view", "_reshape_alias")
    ):
        return f"is not there for {sorted(map(str, wide_unsigned))}"
    integers = {dtype for dtype in dtypes if not (dtype.is_floating_point or dtype.is_complex)}
    if name in PRODUCT_OPS and integers:
        return f"multiplies no {sorted(map(str, integers))}"
    if name in ORDERING_OPS and torch.bool in dtypes:
        return "does not order booleans"
    return ""
