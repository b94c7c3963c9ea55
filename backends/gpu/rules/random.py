"""Random bits as functions of keys, identical to those of all backends."""

from shardir.backends.gpu.kernels import Kernel, write_random
from shardir.backends.gpu.layout import tidied
from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.names import identifier
from shardir.backends.gpu.rules.groups import define
from shardir.backends.gpu.spelling import TORCH, listed
from shardir.backends.gpu.writer import WIDTH, Writer
from shardir.ir.module import Op

FEW = 64
"""Minimum number of elements for which a kernel is emitted."""


@lowers("random_bits", "random_bits_at")
def _bits(w: Writer, op: Op, keys: str, *starts: str) -> str:
    return _drawn(w, op, "draw_bits", TORCH[op.result.type.dtype], keys, *starts)


@lowers("random_split", "random_split_at")
def _split(w: Writer, op: Op, keys: str, *starts: str) -> str:
    return _drawn(w, op, "split_keys", "", keys, *starts)


def _drawn(w: Writer, op: Op, function: str, dtype: str, keys: str, *starts: str) -> str:
    """Return a call of the kernel that draws random elements, or of torch for few elements."""
    about = [dtype] if dtype else []
    if op.result.type.size < FEW:
        return w.call(function, keys, *about, *_place(op, starts))
    types = tuple(value.type for value in op.tensors)
    key = (op.name, types, tuple(sorted(op.attrs.items())))
    name = w.needs.groups.get(key)
    if name is None:
        name = w.names.reserved(f"compute_{identifier(op.result.name)}")
        kernel = write_random(op, name)
        if not isinstance(kernel, Kernel):
            return w.call(function, keys, *about, *_place(op, starts))
        first, *rest = kernel.operands
        call = w.call(function, first, *about, *_place(op, tuple(rest)))
        text = f"def {name}_reference({', '.join(kernel.operands)}):\n    return {call}"
        define(w, kernel, name, tidied(text, WIDTH))
        w.needs.groups[key] = name
    return f"{name}({', '.join((keys, *starts))})"


def _place(op: Op, starts: tuple[str, ...]) -> tuple[str, str, str, str]:
    """Return the texts of the scheme, the shape of all elements of a key, and the offsets and shape
    of the drawn part.
    """
    piece = op.result.type.shape[op.operands[0].type.rank :]
    scheme = op.attrs.get("scheme", "partitionable")
    return f'"{scheme}"', listed(op.attrs.get("shape", piece)), listed(starts), listed(piece)


@lowers("random_fold_in")
def _fold_in(w: Writer, op: Op, keys: str, data: str) -> str:
    return w.call("fold_into", keys, data)


@lowers("random_hash")
def _hash(w: Writer, op: Op, keys: str, first: str, second: str) -> str:
    return w.call("hash_pairs", keys, first, second)
