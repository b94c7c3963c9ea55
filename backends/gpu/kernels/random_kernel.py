"""Kernels that draw random bits and keys: one kernel instead of about a hundred operations.

An element depends on its key and on its index among all elements of the key, so that a kernel needs
only the keys and the offsets of the slice.
"""

from math import prod

from shardir.backends.gpu.dtypes import POINTER_TYPES, TRITON_TYPES
from shardir.backends.gpu.kernels.kernel import KernelLaunch, KernelRefusal, KernelText
from shardir.backends.gpu.kernels.kernel_text import allocation_text, function_text, make_kernel
from shardir.backends.gpu.kernels.tile_sizes import (
    TileSizes,
    ceil_divide,
    count_warps,
    next_power_of_two,
)
from shardir.backends.gpu.kernels.value_names import identifier, make_unused_name
from shardir.ir.module import Op
from shardir.ir.types import NUMPY_DTYPES

_OWN_NAMES = ("at", "mask", "place", "which", "high", "low", "device", "tl", "torch", "triton")


def write_random_kernel(
    op: Op, name: str, sizes: TileSizes | None = None
) -> KernelText | KernelRefusal:
    """Return the kernel of an operation that draws bits; keys are tensors of `torch.uint64`.

    Names are as in `write_kernel`: the launch names the operands and the result after the values.
    """
    type = op.result.type
    if op.attrs.get("scheme", "partitionable") != "partitionable":
        return KernelRefusal(f"{op.name} makes the words of scheme={op.attrs['scheme']} in pairs")
    if not type.size:
        return KernelRefusal(f"%{op.result.name}: {type} has no elements")
    size = (sizes or TileSizes()).flat_elements
    block = min(size, next_power_of_two(type.size))
    names = _names(op, name)
    launch = KernelLaunch(
        f"{name}_kernel",
        (ceil_divide(type.size, block),),
        {f"{word}_ptr": _pointer(value.type.dtype) for word, value in zip(
            names, op.tensors, strict=True)},
        {"BLOCK": block},
        min(count_warps(block), 4),
    )  # fmt: skip
    text = function_text(launch, [_describe_draw(op)], _lines(op, names, block))
    stored = "u64" if type.dtype == "key" else type.dtype
    made = allocation_text(names[-1], type.shape, stored, f"{names[0]}.device")
    return make_kernel([text], [launch], [made], names[:-1], names[-1:])


def _names(op: Op, name: str) -> list[str]:
    """Return the names of the operands and the result."""
    taken = [*_OWN_NAMES, "threefry", name, f"{name}_kernel"]
    for value in op.tensors:
        taken.append(make_unused_name(identifier(value.name), taken, "_"))
    return taken[len(_OWN_NAMES) + 3 :]


def _pointer(dtype: str) -> str:
    return POINTER_TYPES["u64" if dtype == "key" else dtype]


def _describe_draw(op: Op) -> str:
    keys, made = op.operands[0], op.result
    whole = op.attrs.get("shape", ())
    piece = f", a piece of {list(whole)}" if whole else ""
    return f"{op.name} of %{keys.name}: {keys.type} gives %{made.name}: {made.type}{piece}."


def _lines(op: Op, names: list[str], block: int) -> list[str]:
    """Return the body of the kernel."""
    keys, *starts, result = names
    type, rank = op.result.type, op.operands[0].type.rank
    piece = type.shape[rank:]
    whole = op.attrs.get("shape", piece)
    is_large = max(type.size, prod(whole)) >= 1 << 30
    masked = type.size % block != 0
    lines = [
        f"at = tl.program_id(0){'.to(tl.int64)' if is_large else ''} * BLOCK + tl.arange(0, BLOCK)"
    ]
    lines += [f"mask = at < {type.size}"] if masked else []
    among = ", mask" if masked else ""
    if rank:
        lines.append(f"{keys} = tl.load({keys}_ptr + at // {prod(piece)}{among})")
        lines.append(f"which = at % {prod(piece)}")
    else:
        lines.append(f"{keys} = tl.load({keys}_ptr)")
        lines.append("which = at")
    if not starts:
        lines[-1] = lines[-1].replace("which", "place")
    else:
        lines += _index_lines(starts, piece, whole, is_large)
    high = "(place >> 32).to(tl.uint32)" if prod(whole) >= 1 << 30 else "tl.full((), 0, tl.uint32)"
    lines.append(f"high, low = threefry({keys}, {high}, place.to(tl.uint32))")
    bits = NUMPY_DTYPES[type.dtype].itemsize * 8
    if bits == 64:
        made = "(high.to(tl.uint64) << 32) | low.to(tl.uint64)"
    else:
        made = "high ^ low" if bits == 32 else f"(high ^ low).to({TRITON_TYPES[type.dtype]})"
    return [*lines, f"tl.store({result}_ptr + at, {made}{among})"]


def _index_lines(
    starts: list[str], piece: tuple[int, ...], whole: tuple[int, ...], is_large: bool
) -> list[str]:
    """Return the lines that compute the index of each element of a slice; starts are at least 0."""
    lines = []
    terms = []
    for dim, (start, extent) in enumerate(zip(starts, piece, strict=True)):
        begin = f"tl.maximum(tl.load({start}_ptr), 0)"
        lines.append(f"{start} = {begin}.to(tl.{'int64' if is_large else 'int32'})")
        inner, step = prod(piece[dim + 1 :]), prod(whole[dim + 1 :])
        index = f"which // {inner}" if inner > 1 else "which"
        index = f"{index} % {extent}" if dim else index
        terms.append(f"({start} + {index}){f' * {step}' if step > 1 else ''}")
    return [*lines, f"place = {' + '.join(terms)}"]
