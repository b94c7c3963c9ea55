"""Emit the steps of a body, each once, in the outermost loop that its operands allow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, vector_type
from shardir.backends.cpu.kernels.elementwise.loop_axes import BROADCAST
from shardir.backends.cpu.kernels.elementwise.loop_body import (
    APPLY,
    ARRAY,
    CONSTANT,
    IOTA,
    REDUCE,
    LoopBody,
)
from shardir.backends.cpu.kernels.elementwise.vector_access import (
    VectorAccess,
    VectorPlace,
    splat_value,
)
from shardir.backends.cpu.kernels.math import inline, registers
from shardir.backends.cpu.kernels.math.application import Divisor
from shardir.backends.cpu.kernels.math.division import prepare_invariant_divisor
from shardir.backends.cpu.kernels.math.registers import VectorValue
from shardir.ir.types import INTEGERS

FindPlace = Callable[[int], VectorPlace]
"""Returns the current place of array `number`."""


@dataclass
class StepValues:
    """The values of steps that are computed at some point of a kernel."""

    function: LLVMFunction
    body: LoopBody
    count: int
    computed: dict[int, VectorValue] = field(default_factory=dict)
    divisors: dict[int, Divisor] = field(default_factory=dict)

    def copy_for_inner_loop(self) -> "StepValues":
        """Return a copy to which an inner loop adds values."""
        return StepValues(
            self.function, self.body, self.count, dict(self.computed), dict(self.divisors)
        )

    def precompute_divisors(self) -> None:
        """Precompute the reciprocals of integers that inner loops divide by."""
        for step in self.body.steps:
            if step.op in ("div", "rem") and step.dtype in INTEGERS:
                by = step.operands[1]
                if by in self.computed and by not in self.divisors:
                    self.divisors[by] = prepare_invariant_divisor(
                        registers.real_vector(self.computed[by]), step.dtype
                    )

    def evaluate(
        self,
        steps: Sequence[int],
        vectors: VectorAccess,
        array: FindPlace,
        index: Callable[[int], VectorValue],
    ) -> None:
        """Emit these steps in order, unless they are already computed."""
        for i in steps:
            if i in self.computed:
                continue
            step = self.body.steps[i]
            if step.kind == ARRAY:
                self.computed[i] = vectors.load(array(step.number))
            elif step.kind == CONSTANT:
                number = dict(step.attrs)["value"]
                self.computed[i] = registers.splat_constant(
                    self.function, number, step.dtype, self.count
                )
            elif step.kind == IOTA:
                self.computed[i] = self._apply(
                    "convert", {}, [index(step.number)], ["i64"], step.dtype
                )
            elif step.kind == APPLY:
                operands = [self.computed[k] for k in step.operands]
                dtypes = [self.body.steps[k].dtype for k in step.operands]
                by = self.divisors.get(step.operands[-1]) if len(operands) == 2 else None
                self.computed[i] = self._apply(
                    step.op, dict(step.attrs), operands, dtypes, step.dtype, by
                )

    def _apply(
        self,
        op: str,
        attrs: dict[str, object],
        operands: Sequence[VectorValue],
        dtypes: Sequence[str],
        result: str,
        divisor: Divisor | None = None,
    ) -> VectorValue:
        made = inline.emit_elementwise(self.function, op, attrs, operands, dtypes, result, divisor)
        if made is None:
            raise NotImplementedError(f"no instructions for {op} of {', '.join(dtypes)}")
        return made


def iota_vector(f: LLVMFunction, place: VectorPlace, first: LLVMValue, count: int) -> VectorValue:
    """Return a vector of iota indices that starts with `first`."""
    splat_first = splat_value(f, first, count)
    assert isinstance(splat_first, LLVMValue)
    if place.layout == BROADCAST:
        return splat_first
    type = vector_type("i64", count)
    lanes = LLVMValue(f"<{', '.join(f'i64 {i}' for i in range(count))}>", type, f)
    if place.stride is None:
        return splat_first + lanes
    step = splat_value(f, place.stride, count)
    assert isinstance(step, LLVMValue)
    return splat_first + lanes * step


def invariant_steps(body: LoopBody, kinds: Sequence[tuple[str, str]], counted: int) -> list[int]:
    """Return the steps whose value is the same in all columns, reductions excluded."""
    indices_from = len(kinds) - counted
    same: set[int] = set()
    for i, step in enumerate(body.steps):
        if step.kind == ARRAY:
            is_invariant = kinds[step.number][1] == BROADCAST
        elif step.kind == IOTA:
            is_invariant = kinds[indices_from + step.number][1] == BROADCAST
        else:
            is_invariant = step.kind != REDUCE and all(k in same for k in step.operands)
        if is_invariant:
            same.add(i)
    return sorted(same)
