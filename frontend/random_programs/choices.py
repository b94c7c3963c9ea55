"""Random decisions, from which a random program is made.

Tests that use a library for property-based testing implement `Choices` with its generators, so that
the library can reduce failing programs.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random
from typing import TypeVar, final

import numpy as np

from shardir.ir.dtypes import NumpyArray
from shardir.ir.types import COMPLEX, INTEGERS, TensorType

Option = TypeVar("Option")

MAX_INTEGER = 8
"""The largest magnitude of integers in constants of seeded programs."""


class Choices(ABC):
    """A source of random decisions."""

    @abstractmethod
    def choose(self, options: Sequence[Option]) -> Option:
        """Return one of the options."""

    @abstractmethod
    def integer(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""

    @abstractmethod
    def flag(self) -> bool:
        """Return true or false."""

    @abstractmethod
    def permute(self, items: Sequence[Option]) -> list[Option]:
        """Return the items in any order."""

    @abstractmethod
    def number(self, dtype: str) -> complex:
        """Return a Python number for an element of this type."""

    @abstractmethod
    def elements(self, type: TensorType) -> NumpyArray:
        """Return an array of this type."""


@final
class SeededChoices(Choices):
    """Decisions that a seed determines. Numbers are finite and of moderate size."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def choose(self, options: Sequence[Option]) -> Option:
        return options[self._random.randrange(len(options))]

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def flag(self) -> bool:
        return self._random.random() < 0.5

    def permute(self, items: Sequence[Option]) -> list[Option]:
        return self._random.sample(list(items), len(items))

    def number(self, dtype: str) -> complex:
        if dtype == "bool":
            return self.flag()
        if dtype in INTEGERS:
            low = 0 if dtype.startswith("u") else -MAX_INTEGER
            return self._random.randint(low, MAX_INTEGER)
        real = self._random.gauss(0, 1)
        return complex(real, self._random.gauss(0, 1)) if dtype in COMPLEX else real

    def elements(self, type: TensorType) -> NumpyArray:
        numbers = [self.number(type.dtype) for _ in range(type.size)]
        return np.array(numbers, object).astype(type.numpy).reshape(type.shape)
