"""On CPUs torch computes more than on GPUs: what it lacks there is refused here as well.

`with as_on_gpus():` around torch's work raises `AssertionError` for an operation that has no kernel
on GPUs for the element type it is given: almost all on unsigned integers of more than 8 bits (as
in `"index_cuda" not implemented for 'UInt16'`), and products of matrices of integers. A program
that can be a CUDA graph is to let the host read nothing: `as_on_gpus(reads=False)`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
MADE = (
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "fill_", "zero_"),
    *("zeros", "zeros_like", "ones_like", "full", "full_like", "new_full", "new_zeros"),
    *("lift_fresh", "set_"),
)
COPIED = ("copy_", "clone", "_to_copy", "_local_scalar_dense")
MULTIPLIED = ("mm", "bmm", "addmm", "baddbmm", "mv", "dot", "vdot", "convolution")
ORDERED = ("argmax", "argmin", "cummax", "cummin", "scatter_reduce", "sort")
READ = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero")
EXCHANGED = "c10d"


def as_on_gpus(reads: bool = True) -> AbstractContextManager[Any]:
    """Inside, torch has no kernels but those that it has on GPUs."""

    def dispatch(
        mode: Any,
        func: Any,
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, made)) if isinstance(x, torch.Tensor)]
        reason = _missing(func, {x.dtype for x in tensors})
        assert not reason, f"{func} {reason}"
        assert reads or func.overloadpacket.__name__ not in READ, f"{func} makes the host wait"
        return made

    mode: AbstractContextManager[Any] = type(
        "AsOnGPUs", (TorchDispatchMode,), {"__torch_dispatch__": dispatch}
    )()
    return mode


def _missing(func: Any, dtypes: set[torch.dtype]) -> str:
    """Why there is no such kernel on GPUs; empty if there is."""
    name = func.overloadpacket.__name__
    if func.namespace == EXCHANGED:
        return ""
    foreign = dtypes.intersection(UNSIGNED)
    if foreign and not (func.is_view or name in (*MADE, *COPIED, "_unsafe_view", "_reshape_alias")):
        return f"is not there for {sorted(map(str, foreign))}"
    whole = {dtype for dtype in dtypes if not (dtype.is_floating_point or dtype.is_complex)}
    if name in MULTIPLIED and whole:
        return f"multiplies no {sorted(map(str, whole))}"
    if name in ORDERED and torch.bool in dtypes:
        return "does not order booleans"
    return ""
