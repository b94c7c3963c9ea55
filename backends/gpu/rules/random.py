"""Random bits as functions of keys, bit for bit as everywhere else."""

from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.spelling import TORCH, listed
from shardir.backends.gpu.writer import Writer
from shardir.ir import Op


@lowers("random_bits", "random_bits_at")
def _bits(w: Writer, op: Op, keys: str, *starts: str) -> str:
    return w.call("draw_bits", keys, TORCH[op.result.type.dtype], *_place(op, starts))


@lowers("random_split", "random_split_at")
def _split(w: Writer, op: Op, keys: str, *starts: str) -> str:
    return w.call("split_keys", keys, *_place(op, starts))


def _place(op: Op, starts: tuple[str, ...]) -> tuple[str, str, str, str]:
    """The scheme, the shape of all that a key makes, and the piece of it."""
    piece = op.result.type.shape[op.operands[0].type.rank :]
    scheme = op.attrs.get("scheme", "partitionable")
    return f'"{scheme}"', listed(op.attrs.get("shape", piece)), listed(starts), listed(piece)


@lowers("random_fold_in")
def _fold_in(w: Writer, op: Op, keys: str, data: str) -> str:
    return w.call("fold_into", keys, data)


@lowers("random_hash")
def _hash(w: Writer, op: Op, keys: str, first: str, second: str) -> str:
    return w.call("hash_pairs", keys, first, second)
