"""Random bits as functions of keys, identical to those of all backends."""

from shardir.backends.gpu.dtypes import TORCH_DTYPES
from shardir.backends.gpu.function_writer import MAX_LINE_CHARACTERS, FunctionWriter
from shardir.backends.gpu.identifiers import make_identifier
from shardir.backends.gpu.kernels import KernelText, write_random_kernel
from shardir.backends.gpu.line_wrapping import wrap_code
from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.torch_text import list_text
from shardir.ir.module import Op

MIN_KERNEL_ELEMENTS = 64
"""Minimum number of elements for which a kernel is emitted."""


@lowers("random_bits", "random_bits_at")
def _bits(w: FunctionWriter, op: Op, keys: str, *starts: str) -> str:
    return _draw(w, op, "draw_bits", TORCH_DTYPES[op.result.type.dtype], keys, *starts)


@lowers("random_split", "random_split_at")
def _split(w: FunctionWriter, op: Op, keys: str, *starts: str) -> str:
    return _draw(w, op, "split_keys", "", keys, *starts)


def _draw(w: FunctionWriter, op: Op, function: str, dtype: str, keys: str, *starts: str) -> str:
    """Return a call of the kernel that draws random elements, or of torch for few elements."""
    about = [dtype] if dtype else []
    if op.result.type.size < MIN_KERNEL_ELEMENTS:
        return w.call_library(function, keys, *about, *_part_arguments(op, starts))
    types = tuple(value.type for value in op.tensors)
    key = (op.name, types, tuple(sorted(op.attrs.items())))
    name = w.needs.groups.get(key)
    if name is None:
        name = w.names.reserve(f"compute_{make_identifier(op.result.name)}")
        kernel = write_random_kernel(op, name)
        if not isinstance(kernel, KernelText):
            return w.call_library(function, keys, *about, *_part_arguments(op, starts))
        first, *rest = kernel.operands
        call = w.call_library(function, first, *about, *_part_arguments(op, tuple(rest)))
        text = f"def {name}_reference({', '.join(kernel.operands)}):\n    return {call}"
        w.define_kernel(kernel, name, wrap_code(text, MAX_LINE_CHARACTERS))
        w.needs.groups[key] = name
    return f"{name}({', '.join((keys, *starts))})"


def _part_arguments(op: Op, starts: tuple[str, ...]) -> tuple[str, str, str, str]:
    """Return the texts of the scheme, the shape of all elements of a key, and the offsets and shape
    of the drawn part.
    """
    piece = op.result.type.shape[op.operands[0].type.rank :]
    scheme = op.attrs.get("scheme", "partitionable")
    return (
        f'"{scheme}"',
        list_text(op.attrs.get("shape", piece)),
        list_text(starts),
        list_text(piece),
    )


@lowers("random_fold_in")
def _fold_in(w: FunctionWriter, op: Op, keys: str, data: str) -> str:
    return w.call_library("fold_into", keys, data)


@lowers("random_hash")
def _hash(w: FunctionWriter, op: Op, keys: str, first: str, second: str) -> str:
    return w.call_library("hash_pairs", keys, first, second)
