"""Which operations each clause of a checkpoint policy saves."""

from typing import Any

import pytest

from shardir.ir.host_function import HostFunction
from shardir.passes.autodiff.checkpoint_policies import is_saved
from tests.passes.autodiff.derivative_programs import function

PROGRAM = """\
func @f(%x: f32[2, 3], %w: f32[3, 3], %t: f32[2, 3, 4], %i: f32[2, 8, 5], %k: f32[1, 5, 5]) -> () {
  %first = checkpoint-name(%x, label="a") : f32[2, 3]
  %other = checkpoint-name(%x, label="b") : f32[2, 3]
  %sine = sin(%x) : f32[2, 3]
  %product = dot(%x, %w, dims="bi,ih->bh") : f32[2, 3]
  %batch = dot(%t, %t, dims="bij,bkj->bik") : f32[2, 3, 3]
  %convolution = convolution(%i, %k, dims="b0f,0io->b0f", strides=[1], padding=[[0, 0]], \
lhs_dilation=[1], rhs_dilation=[1]) : f32[2, 8, 5]
  %loop = scan(%x, carries=1, length=2) : f32[2, 3] { (%c: f32[2, 3]) =>
    yield %c
  }
  return
}
"""
NAMED = ["first", "other"]
DOTS = ["product", "batch", "convolution"]


def saves_products_by_matrices(operation: str, x: Any, *more: Any, **attrs: Any) -> bool:
    return operation == "dot" and x.rank == 2 and attrs["dims"] == "bi,ih->bh"


@pytest.mark.parametrize(
    ("save", "expected"),
    [
        ([], []),
        (["everything"], [*NAMED, "sine", *DOTS]),
        (["anything"], [*NAMED, "sine", *DOTS]),
        (["anything-but=a|c"], ["other", "sine", *DOTS]),
        (["named"], NAMED),
        (["named-but=a|c"], ["other"]),
        (["name=a"], ["first"]),
        (["dots"], DOTS),
        (["dots-without-batch"], ["product"]),
        (["dots-without-batch", "name=b"], ["other", "product"]),
        ([HostFunction("products", saves_products_by_matrices)], ["product"]),
    ],
)
def test_a_policy_saves_the_operations_that_its_clauses_select(
    save: list[str], expected: list[str]
) -> None:
    """No clause saves a loop itself; it saves the values of the body."""
    ops = function(PROGRAM).body.ops
    assert [op.results[0].name for op in ops if is_saved(save, op)] == expected
