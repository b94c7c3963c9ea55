"""Writing of random keys and bits as threefry rounds in StableHLO operations.

This is for consumers without shardir's custom calls (`rules.py`). Every device computes its own
shard, as `shardir/ops/random/threefry.py` does.
"""

from math import prod

from shardir import (
    ops as ops,  # declares the operations
    ops as specs,
)
from shardir.ir.module import Op
from shardir.ir.operation import OPS
from shardir.ir.types import TensorType
from shardir.ops.random.threefry import PARITY, ROTATIONS
from shardir.stablehlo.writing.attributes import format_array, format_integer
from shardir.stablehlo.writing.writer import WRITERS, ExportError, MlirWriter, TypedName


class ArrayWriter:
    """Writes operations on arrays of one shape by name."""

    def __init__(self, w: MlirWriter, shape: tuple[int, ...]) -> None:
        self.w, self.shape = w, shape

    def kind(self, dtype: str) -> TensorType:
        return TensorType(self.shape, dtype)

    def splat(self, value: int, dtype: str) -> TypedName:
        scalar = self.w.constant(value, TensorType((), dtype))
        return self.broadcast(scalar)

    def broadcast(self, x: TypedName) -> TypedName:
        """Return a value broadcast along trailing dimensions."""
        if x[1].shape == self.shape:
            return x
        attrs = {"broadcast_dimensions": format_array(range(x[1].rank))}
        result_type = TensorType(self.shape, x[1].dtype)
        return self.w.write_step("stablehlo.broadcast_in_dim", [x], result_type, attrs)

    def apply(self, name: str, *xs: TypedName) -> TypedName:
        return self.w.write_step(f"stablehlo.{name}", xs, self.kind(xs[0][1].dtype))

    def convert(self, x: TypedName, dtype: str) -> TypedName:
        return self.w.write_step("stablehlo.convert", [x], self.kind(dtype))

    def split_words(self, words: TypedName) -> tuple[TypedName, TypedName]:
        """Return the high and the low 32 bits of 64-bit words."""
        high = self.apply("shift_right_logical", words, self.splat(32, "u64"))
        return self.convert(high, "u32"), self.convert(words, "u32")

    def join_words(self, high: TypedName, low: TypedName) -> TypedName:
        wide = self.convert(high, "u64")
        up = self.apply("shift_left", wide, self.splat(32, "u64"))
        return self.apply("or", up, self.convert(low, "u64"))

    def threefry(
        self, keys: TypedName, first: TypedName, second: TypedName
    ) -> tuple[TypedName, TypedName]:
        """Return the threefry hash (twenty rounds); `keys` have 64 bits each."""
        high, low = self.split_words(self.broadcast(keys))
        third = self.apply("xor", self.apply("xor", high, low), self.splat(PARITY, "u32"))
        schedule = (high, low, third)
        x, y = self.apply("add", first, high), self.apply("add", second, low)
        for group in range(5):
            for rotation in ROTATIONS[group % 2]:
                x = self.apply("add", x, y)
                left = self.apply("shift_left", y, self.splat(rotation, "u32"))
                right = self.apply("shift_right_logical", y, self.splat(32 - rotation, "u32"))
                y = self.apply("xor", self.apply("or", left, right), x)
            x = self.apply("add", x, schedule[(group + 1) % 3])
            y = self.apply("add", y, schedule[(group + 2) % 3])
            y = self.apply("add", y, self.splat(group + 1, "u32"))
        return x, y


def _indices(
    w: MlirWriter, steps: ArrayWriter, rank: int, shape: tuple[int, ...], starts: list[TypedName]
) -> TypedName:
    """Return the flat index in an array of `shape` of each element of a shard after `rank`
    dimensions.
    """
    flat = steps.splat(0, "u64")
    for dim, size in enumerate(steps.shape[rank:]):
        if size == 1 and not starts:
            continue
        counted = w.write_step("stablehlo.iota", [], steps.kind("u64"),
                         {"iota_dimension": format_integer(rank + dim)})  # fmt: skip
        if starts:
            name, kind = starts[dim]
            start = w.write_step("stablehlo.convert", [(name, kind)], TensorType((), "u64"))
            counted = steps.apply("add", counted, steps.broadcast(start))
        each = steps.splat(prod(shape[dim + 1 :]), "u64")
        flat = steps.apply("add", flat, steps.apply("multiply", counted, each))
    return flat


def write_threefry(w: MlirWriter, op: Op) -> None:
    """Write the operation as threefry rounds; raise `ExportError` for the original scheme."""
    if op.attrs.get("scheme", "partitionable") != "partitionable":
        raise ExportError(
            f"%{op.result.name} uses scheme=original, which StableHLO operations cannot "
            "express; use scheme=partitionable"
        )
    keys, *rest = map(w.typed_name, op.operands)
    result = op.result.type
    steps = ArrayWriter(w, result.shape)
    if op.spec in (specs.random_fold_in, specs.random_hash):
        first, second = rest if op.spec is specs.random_hash else (steps.splat(0, "u32"), rest[0])
        _write_key(w, op, steps, *steps.threefry(keys, first, second))
        return
    shape = op.attrs.get("shape", result.shape[keys[1].rank :])
    flat = _indices(w, steps, keys[1].rank, shape, rest)
    high, low = steps.threefry(keys, *steps.split_words(flat))
    if result.dtype in ("key", "u64"):
        _write_key(w, op, steps, high, low)
        return
    mixed = steps.apply("xor", high, low)
    w.write_op(op, "stablehlo.convert", operands=[mixed])


def _write_key(w: MlirWriter, op: Op, steps: ArrayWriter, high: TypedName, low: TypedName) -> None:
    up = steps.apply("shift_left", steps.convert(high, "u64"), steps.splat(32, "u64"))
    w.write_op(op, "stablehlo.or", operands=[up, steps.convert(low, "u64")])


WRITERS.rule(OPS["random_bits_at"], OPS["random_split_at"])(write_threefry)
