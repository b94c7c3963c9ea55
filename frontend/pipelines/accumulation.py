"""Sums and stacks over microbatches whose result does not depend on the schedule."""

import numpy as np

from shardir.ir.types import NumpyArray


class OrderedSum:
    """A sum of one term for each microbatch, added in the order of the microbatches.

    A term that comes before an earlier microbatch's is kept until then. Therefore all schedules
    give the same bits.
    """

    def __init__(self) -> None:
        self._sum: NumpyArray | None = None
        self._owned = False
        self._next = 0
        self._early: dict[int, NumpyArray] = {}

    def add(self, microbatch: int, term: NumpyArray) -> None:
        """Add the term of a microbatch."""
        self._early[microbatch] = term
        while (following := self._early.pop(self._next, None)) is not None:
            if self._sum is None:
                self._sum = following
            elif self._owned:
                np.add(self._sum, following, out=self._sum)
            else:
                self._sum, self._owned = np.asarray(self._sum + following), True
            self._next += 1

    def total(self, microbatches: int) -> NumpyArray:
        """Return the sum of the terms of all microbatches."""
        assert self._sum is not None
        assert self._next == microbatches, "a term is missing"
        return self._sum


class Stack:
    """The values of all microbatches, in order."""

    def __init__(self) -> None:
        self._rows: dict[int, NumpyArray] = {}

    def add(self, microbatch: int, row: NumpyArray) -> None:
        """Add the value of a microbatch."""
        self._rows[microbatch] = row

    def total(self, microbatches: int) -> NumpyArray:
        """Return the values of all microbatches, stacked."""
        return np.stack([self._rows[number] for number in range(microbatches)])
