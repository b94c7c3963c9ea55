"""Samples of operations, and the random operands of each sample.

A sample is one application of an operation: the operation, the types of its operands, its
attributes, and the constraints on random operands. Tests of properties that hold for every
operation iterate over samples: type rule, reference interpreter, derivatives, partitioning,
backends.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.ir.builder import Builder
from shardir.ir.dtypes import KEY_WORDS, KEYS
from shardir.ir.key_implementations import join_words
from shardir.ir.module import Block, Function, Module, Value
from shardir.ir.operation import OpSpec
from shardir.ir.types import COMPLEX, REAL_OF, TensorType
from tests.dtype_groups import FLOATS

Array = npt.NDArray[Any]
Source = Callable[[np.random.Generator, TensorType], Array]
"""Makes an operand of a type."""

WIDE = {"f16": "f64", "bf16": "f64", "f32": "f64", "c64": "c128"}
"""Where derivatives are measured."""


def between(low: float, high: float) -> Source:
    """Return a source of values in a range: distinct floats (both parts of complex numbers), or
    integers.
    """

    def make(rng: np.random.Generator, type: TensorType) -> Array:
        if type.dtype in COMPLEX:
            part = type.with_dtype(REAL_OF[type.dtype])
            return (make(rng, part) + 1j * make(rng, part)).astype(type.numpy)
        if type.dtype in KEYS:
            words = type.with_shape((*type.shape, KEY_WORDS[type.dtype])).with_dtype("u32")
            return join_words(make(rng, words), type.dtype)
        if type.dtype not in FLOATS:
            return rng.integers(int(low), int(high), type.shape, endpoint=True).astype(type.numpy)
        places = rng.permutation(type.size) + rng.uniform(0.2, 0.8, type.size)
        numbers = low + (high - low) * places / max(type.size, 1)
        return numbers.reshape(type.shape).astype(type.numpy)

    return make


def exactly(values: npt.ArrayLike) -> Source:
    """Return a source of these values in every dtype."""
    return lambda rng, type: np.asarray(values).astype(type.numpy).reshape(type.shape)


def any_values(rng: np.random.Generator, type: TensorType) -> Array:
    """Return values without special cases: bools, numbers around zero, any key."""
    if type.dtype == "bool":
        return rng.integers(0, 2, type.shape).astype(np.bool_)
    if type.dtype in KEYS:
        return rng.integers(0, 256, (*type.shape, type.numpy.itemsize), np.uint8).view(type.numpy)[
            ..., 0
        ]
    if type.dtype.startswith("u"):
        return between(0, 9)(rng, type)
    return (
        between(-2.1, 2.3)(rng, type) if type.numpy.kind not in "iu" else between(-9, 9)(rng, type)
    )


@dataclass(frozen=True)
class Sample:
    """One application of an operation.

    `result` is the stated type, for operations that require one. `sources` makes the operands (the
    last one applies to all remaining operands). `blocks` builds the blocks of an operation that has
    any, with a builder of the outer function and the operands, which a block may capture. `smooth`
    is false where the vjp is not the derivative, or there is none.
    """

    spec: OpSpec
    operands: tuple[TensorType, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    result: TensorType | tuple[TensorType, ...] | None = None
    sources: tuple[Source, ...] = (any_values,)
    blocks: Callable[[Builder, Sequence[Value]], tuple[Block, ...]] | None = None
    smooth: bool = True

    @property
    def id(self) -> str:
        """Return a unique name of the sample for test reports."""
        operands = ",".join(f"{t.dtype}[{'x'.join(map(str, t.shape))}]" for t in self.operands)
        attrs = ",".join(f"{name}={_brief(value)}" for name, value in self.attrs.items())
        stated = "" if self.result is None else "->" + _brief(self.result)
        return f"{self.spec.name}({operands}{';' if attrs else ''}{attrs}){stated}".replace(" ", "")

    def arrays(self, seed: int = 0) -> list[Array]:
        """Return random operands, which are equal for equal seeds."""
        rng = np.random.default_rng(seed)
        last = len(self.sources) - 1
        return [self.sources[min(i, last)](rng, type) for i, type in enumerate(self.operands)]

    def emit(self, b: Builder, operands: Sequence[Value]) -> tuple[Value, ...]:
        """Apply the operation and return all its results."""
        blocks = self.blocks(b, operands) if self.blocks else ()
        made = b.emit(self.spec, *operands, result=self.result, blocks=blocks, **self.attrs)
        return made if isinstance(made, tuple) else (made,)

    def function(self) -> Function:
        """Return a function of the operands that applies the operation once."""
        b = Builder()
        params = [b.param(type, f"x{i}") for i, type in enumerate(self.operands)]
        results = self.emit(b, params)
        return Function("f", b.block(params, results), (None,) * len(results))

    def module(self) -> Module:
        """Return a module without meshes that contains `function`."""
        return Module((), (self.function(),))

    def widened(self) -> "Sample":
        """Return the same sample in f64 and c128."""
        result = self.result
        if isinstance(result, tuple):
            result = tuple(_wide(type) for type in result)
        elif result is not None:
            result = _wide(result)
        return replace(self, operands=tuple(map(_wide, self.operands)), result=result)


def _wide(type: TensorType) -> TensorType:
    return type.with_dtype(WIDE.get(type.dtype, type.dtype))


def _brief(value: Any) -> str:
    text = str(value) if not isinstance(value, tuple) else ",".join(map(_brief, value))
    return text if len(text) <= 40 else f"{text[:37]}..."


def t(dtype: str, *shape: int) -> TensorType:
    """Return a tensor type; a short name for tables."""
    return TensorType(shape, dtype)
