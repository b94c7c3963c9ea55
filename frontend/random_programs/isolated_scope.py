"""The scope of blocks that are isolated: those of manual computations and calls."""

from collections.abc import Callable
from dataclasses import dataclass

from shardir.frontend.random_programs.scope import Scope
from shardir.ir.dtypes import KEYS
from shardir.ir.module import Value
from shardir.ir.types import TensorType


@dataclass
class IsolatedScope(Scope):
    """The scope of a block that uses no values from outside."""

    def any(self, fits: Callable[[Value], bool], new: Callable[[], TensorType]) -> Value:
        fitting = [value for value in self.seen if fits(value)]
        if fitting and self.integer(0, 3):
            return self.choices.choose(fitting)
        return _filled_tensor(self, new())


def _filled_tensor(s: Scope, type: TensorType) -> Value:
    if type.dtype in KEYS:
        return s.b.full(s.integer(0, 9), type)
    return s.b.full(s.integer(0, 3) if type.dtype != "bool" else s.flag(), type)
