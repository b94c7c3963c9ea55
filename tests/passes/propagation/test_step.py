"""Shardings on several meshes: which ones propagate through one operation."""

import pytest

from shardir.passes import Propagate
from shardir.passes.propagation.record import RefusalReason
from shardir.text.parser import parse
from tests.passes.propagation.propagation_result import types_by_name

MESHES = """\
mesh @m = [x=2]
mesh @n = [x=4]
mesh @none = []
mesh @one = [] devices=[0]

"""


def program(first: str, second: str) -> str:
    return f"""\
{MESHES}func @f(
  %a: {first},
  %b: {second},
) -> (f32[8]) {{
  %c = add(%a, %b) : f32[8]
  return %c
}}
"""


@pytest.mark.parametrize(
    ("first", "second", "result", "reason"),
    [
        ("f32[8@x]", "f32[8]", "f32[8@x]", None),
        # A mesh without axes is compatible with any mesh of several devices.
        ("f32[8@x]", "f32[8@-] on @none", "f32[8@x]", None),
        ("f32[8@-] on @none", "f32[8@x]", "f32[8@x]", None),
        ("f32[8@x]", "f32[8@x] on @n", "f32[8@-]", RefusalReason.MESHES),
        ("f32[8@x]", "f32[8] on @one", "f32[8@-]", RefusalReason.SINGLE_DEVICE),
        ("f32[8] on @one", "f32[8@x]", "f32[8@-]", RefusalReason.SINGLE_DEVICE),
    ],
)
def test_an_operation_propagates_on_one_mesh(
    first: str, second: str, result: str, reason: RefusalReason | None
) -> None:
    text = program(first, second)
    assert types_by_name(text)["c"] == result
    _, record = Propagate().run_recorded(parse(text))
    visit = record.histories["f"].final_visits[0]
    assert {refusal.reason for refusal in visit.refusals if refusal.factor < 0} == {
        *([] if reason is None else [reason])
    }
