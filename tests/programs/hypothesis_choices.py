"""The decisions of random programs made by hypothesis, which reduces failing programs."""

from collections.abc import Sequence
from typing import Any, TypeVar, final

import numpy as np
from hypothesis import strategies as st

from shardir.frontend.random_programs.choices import Choices
from shardir.ir.types import COMPLEX, TensorType
from tests.dtype_groups import INTEGERS

Option = TypeVar("Option")


@final
class HypothesisChoices(Choices):
    """Decisions drawn from hypothesis: numbers of any size, infinities, NaNs and any bits."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def choose(self, options: Sequence[Option]) -> Option:
        return self._draw(st.sampled_from(options))

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def flag(self) -> bool:
        return self._draw(st.booleans())

    def permute(self, items: Sequence[Option]) -> list[Option]:
        return self._draw(st.permutations(items))

    def number(self, dtype: str) -> complex:
        made: complex = self._draw(_numbers(dtype))
        return made

    def elements(self, type: TensorType) -> np.ndarray[Any, Any]:
        made: np.ndarray[Any, Any] = self._draw(_arrays(type))
        return made


def _numbers(dtype: str) -> st.SearchStrategy[Any]:
    if dtype == "bool":
        return st.booleans()
    if dtype in INTEGERS:
        info = np.iinfo(TensorType((), dtype).numpy)
        return st.integers(int(info.min), int(info.max))
    width = {"f16": 16, "bf16": 16, "f32": 32, "c64": 32}.get(dtype, 64)
    floats = st.floats(width=width)  # type: ignore[arg-type]
    return st.builds(complex, floats, floats) if dtype in COMPLEX else floats


def _arrays(type: TensorType) -> st.SearchStrategy[Any]:
    """Arrays of numbers, and arrays of any bits (of bools: 0 and 1)."""
    content = st.binary(min_size=type.nbytes, max_size=type.nbytes)
    if type.dtype == "bool":
        content = content.map(lambda data: bytes(byte & 1 for byte in data))
    listed = st.lists(_numbers(type.dtype), min_size=type.size, max_size=type.size)
    numbers = listed.map(lambda numbers: np.array(numbers, object).astype(type.numpy).tobytes())
    return st.one_of(numbers, content).map(
        lambda data: np.frombuffer(data, type.numpy).reshape(type.shape)
    )
