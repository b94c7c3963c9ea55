"""Copies of programs have the declarations of operations that passes compare by identity."""

import copy
import pickle
from collections.abc import Callable

import pytest

from shardir.ir.module import Module
from shardir.ir.operation import OPS, OpSpec
from shardir.passes.pipeline import Pipeline
from shardir.text.parser import parse

PROGRAM = """
mesh @mesh = [data=2]

spmd func @f(
  %x: bf16[2, 4] of bf16[4@data, 4@-],
  %y: bf16[2, 4] of bf16[4@data, 4@-],
) -> (bf16[4, 4] of bf16[4@-, 4@-]) {
  %g.partial = dot(%x, %y, dims="bi,bj->ij") : bf16[4, 4]
  %g = all-reduce(%g.partial, axes=[data], op=add) : bf16[4, 4]
  return %g
}
"""
COPIES = [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))]


@pytest.mark.parametrize("make_copy", COPIES, ids=["deepcopy", "pickle"])
def test_passes_change_a_copy_as_they_change_the_program(
    make_copy: Callable[[Module], Module],
) -> None:
    module = parse(PROGRAM)
    widen = Pipeline.parse("widen-reductions")
    expected = str(widen(module))
    assert expected != str(module)
    assert str(widen(make_copy(module))) == expected


def test_a_copy_of_a_declaration_is_the_declaration() -> None:
    spec = OPS["dot"]
    assert copy.deepcopy(spec) is spec
    assert copy.copy(spec) is spec
    assert pickle.loads(pickle.dumps(spec)) is spec


def test_a_declaration_that_this_process_lacks_cannot_be_unpickled() -> None:
    data = pickle.dumps(OpSpec("of-another-program", OPS["dot"].type))
    with pytest.raises(LookupError, match="no operation is called 'of-another-program'; the oper"):
        pickle.loads(data)
