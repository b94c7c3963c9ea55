"""Replace element types that IPUs lack by types that they have.

Only the requested types are replaced, in all values of the program. Integers in constants and
captured arrays that do not fit the new type are an error.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from shardir import ops
from shardir.backends.emission import Emission, EmissionError, ProgramValue, Samples
from shardir.backends.ipu.codegen.device_types import ELEMENTS
from shardir.ir.module import Block, Function, GlobalTensor, Module, Op, SpmdInterface, Value
from shardir.ir.operation import Dense
from shardir.ir.types import INTEGERS, NUMPY_DTYPES, TensorType

Casts = Mapping[str, str]

_BITWIDTH_OPERATIONS = (
    ops.bitcast,
    ops.random_bits,
    ops.random_bits_at,
    ops.clz,
    ops.popcnt,
    ops.shift_right_logical,
)
"""Operations whose result depends on the bit width of their element types."""


def parse_casts(text: str) -> dict[str, str]:
    """Return the casts of an option's text, `f64:f32,i64:i32`; raise `EmissionError` for invalid
    text.
    """
    casts = {}
    for part in filter(None, text.split(",")):
        source, colon, to = part.partition(":")
        if not colon or source not in NUMPY_DTYPES or to not in ELEMENTS:
            raise EmissionError(
                f"downcast={text} has {part!r}, which is not a cast to an element type of IPUs; "
                f"write for example f64:f32,i64:i32,bf16:f16 (IPUs have {', '.join(ELEMENTS)})"
            )
        casts[source] = to
    return casts


def downcast_emission(emission: Emission, casts: Casts) -> Emission:
    """Return the program with the element types replaced as `casts` says."""
    if not casts:
        return emission
    return replace(
        emission,
        module=_Recaster(casts).module(emission.module),
        arguments=tuple(_boundary(b, casts) for b in emission.arguments),
        results=tuple(_boundary(b, casts) for b in emission.results),
        samples=_samples(emission.samples, emission, casts),
    )


def _cast(type: TensorType, casts: Casts) -> TensorType:
    return type.with_dtype(casts.get(type.dtype, type.dtype))


def _boundary(boundary: ProgramValue, casts: Casts) -> ProgramValue:
    value = boundary.value
    part = _cast(boundary.shard_type, casts)
    if value is not None and boundary.shard_type.dtype in casts:
        value = _convert_array(value, part.dtype)
        if value is None:
            raise EmissionError(
                f"%{boundary.name} has integers that do not fit {part.dtype}; remove its type "
                "from downcast"
            )
    return replace(
        boundary, unsharded_type=_cast(boundary.unsharded_type, casts), shard_type=part, value=value
    )


def _convert_array(array: Any, to: str) -> Any:
    """Convert an array, or return `None` if integers do not fit; floats out of range become
    infinite, as the program's results would.
    """
    if to in INTEGERS and array.size:
        info = np.iinfo(NUMPY_DTYPES[to])
        if array.min() < info.min or array.max() > info.max:
            return None
    with np.errstate(over="ignore"):
        return array.astype(NUMPY_DTYPES[to])


def _samples(samples: Samples | None, emission: Emission, casts: Casts) -> Samples | None:
    if samples is None:
        return None

    def each(arrays: tuple[Any, ...], boundaries: tuple[ProgramValue, ...]) -> tuple[Any, ...]:
        return tuple(
            a.astype(_cast(b.shard_type, casts).numpy) if b.shard_type.dtype in casts else a
            for a, b in zip(arrays, boundaries, strict=True)
        )

    return Samples(
        each(samples.arguments, emission.arguments), each(samples.results, emission.results)
    )


class _Recaster:
    """Rebuilds a module with new element types."""

    def __init__(self, casts: Casts) -> None:
        self.casts = casts
        self.new: dict[Value, Value] = {}

    def module(self, module: Module) -> Module:
        first, *rest = module.functions
        return replace(module, functions=(self._function(first), *rest))

    def _function(self, function: Function) -> Function:
        spmd = function.spmd
        if spmd is not None:
            spmd = SpmdInterface(
                tuple(GlobalTensor(_cast(g.type, self.casts), g.sharding) for g in spmd.params),
                tuple(GlobalTensor(_cast(g.type, self.casts), g.sharding) for g in spmd.results),
            )
        return replace(function, body=self._block(function.body), spmd=spmd)

    def _value(self, value: Value) -> Value:
        if value not in self.new:
            self.new[value] = replace(value, type=_cast(value.type, self.casts))
        return self.new[value]

    def _values(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(map(self._value, values))

    def _block(self, block: Block) -> Block:
        return Block(
            self._values(block.params), tuple(map(self._op, block.ops)), self._values(block.returns)
        )

    def _op(self, op: Op) -> Op:
        attrs = op.attrs
        if op.spec in _BITWIDTH_OPERATIONS:
            self._check_bits(op)
        if op.spec is ops.constant and op.result.type.dtype in self.casts:
            attrs = {**attrs, "value": self._constant(op)}
        return replace(
            op,
            operands=self._values(op.operands),
            results=self._values(op.results),
            attrs=attrs,
            blocks=tuple(map(self._block, op.blocks)),
        )

    def _check_bits(self, op: Op) -> None:
        for value in op.tensors:
            dtype = value.type.dtype
            if dtype in self.casts:
                raise EmissionError.of(
                    op,
                    f"depends on the bits of {dtype}, which differ from those of "
                    f"{self.casts[dtype]}",
                    f"write the operation with {self.casts[dtype]}",
                )

    def _constant(self, op: Op) -> object:
        value, to = op.attrs["value"], self.casts[op.result.type.dtype]
        array = value.array if isinstance(value, Dense) else np.asarray(value)
        made = _convert_array(array, to)
        if made is None:
            raise EmissionError.of(
                op, f"has integers that do not fit {to}", "remove its type from downcast"
            )
        return Dense(made) if isinstance(value, Dense) else value
