"""Schedules of programs: which items operations become."""

from collections.abc import Sequence

import pytest

from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase, Rules
from shardir.backends.cpu.kernels.rules import LAYOUT_RULES, RULES
from shardir.backends.cpu.schedule.build import ScheduleBuilder
from shardir.backends.cpu.schedule.function_lowering import lower_function
from shardir.backends.cpu.schedule.items import Item, NumPyCall, Segment
from shardir.errors import OutOfMemoryError
from shardir.ir.module import Op
from shardir.text.parser import parse
from tests.backends.cpu.sample_kernels import MULTIPLY_ADD

PHASE = Phase(MULTIPLY_ADD, (0,), 1, 0.0)


def items_of(body: str, rules: Rules = RULES, rows: int = 2) -> tuple[Item, ...]:
    """Return the items of a program of `%x` in f32[rows, 3], which returns `%y` of this type."""
    type = f"f32[{rows}, 3]"
    text = f"func @f(%x: {type}, %w: f32[3, 3]) -> ({type}) {{ %y = {body} : {type} return %y }}"
    lowered = lower_function(parse(text).main, LAYOUT_RULES)
    builder = ScheduleBuilder(lowered, rules, 1, host_machine(), lambda kernel, machine: None)
    return builder.build().items


def lower_to_phase(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> Sequence[Phase]:
    return [PHASE]


def test_the_rule_of_an_elementwise_operation_replaces_its_loop() -> None:
    (segment,) = items_of("sin(%x)", {"sin": lower_to_phase})
    assert isinstance(segment, Segment)
    assert segment.phases == [PHASE]
    (segment,) = items_of("sin(%x)", {})
    assert isinstance(segment, Segment)
    assert PHASE not in segment.phases


def test_numpy_computes_other_operations_without_a_rule() -> None:
    (call,) = items_of('dot(%x, %w, dims="bi,ij->bj")', {})
    assert isinstance(call, NumPyCall)


def test_operations_without_elements_are_omitted() -> None:
    for body in ("sin(%x)", 'dot(%x, %w, dims="bi,ij->bj")'):
        for rules in (RULES, {}, {"sin": lower_to_phase, "dot": lower_to_phase}):
            assert items_of(body, rules, rows=0) == ()


def test_arrays_beyond_the_address_space_are_refused() -> None:
    with pytest.raises(OutOfMemoryError) as caught:
        items_of("sin(%x)", rows=2**53)
    assert str(caught.value) == (
        "no memory for 192.0 PiB: a process can address at most 64.0 PiB; compute on smaller arrays"
    )
