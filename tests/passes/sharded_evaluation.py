"""Programs with random shardings, and the comparison of sharded with unsharded evaluation."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import assume, currently_in_test_context, note, strategies as st

from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import are_close, is_stable, tolerance_of
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.dtypes import KEYS
from shardir.ir.module import Block, Module, Op, Value
from shardir.ir.sharding import Sharding
from shardir.passes import Pipeline
from shardir.verify.verifier import verify
from tests.programs.shardings import shardings

Array = npt.NDArray[Any]


def reject_the_simplest(data: st.DataObject) -> None:
    """Reject the first draw of hypothesis, where each number is 0, and few other draws.

    A test that tries one or two programs per operation then uses random programs only.
    """
    assume(data.draw(st.integers(0, 15)))


def annotate_randomly(
    data: st.DataObject, module: Module, chosen: Callable[[Value], bool]
) -> Module:
    """Return the module with random closed shardings on some values and on results."""
    (mesh,) = module.meshes
    new: dict[Value, Value] = {}

    def cut(value: Value) -> Sharding | None:
        if not chosen(value):
            return None
        # Keys cannot be unreduced sums.
        pending = value.type.dtype not in KEYS and data.draw(st.integers(0, 9)) == 0
        return data.draw(shardings(mesh, value.type.shape, uneven=True, pending=pending))

    def define(value: Value) -> Value:
        new[value] = replace(value, sharding=cut(value))
        return new[value]

    def rebuilt(op: Op) -> Op:
        operands = tuple(new[v] for v in op.operands)
        blocks = tuple(map(block, op.blocks))
        return replace(op, operands=operands, blocks=blocks, results=tuple(map(define, op.results)))

    def block(old: Block) -> Block:
        params = tuple(map(define, old.params))
        ops = tuple(map(rebuilt, old.ops))
        return Block(params, ops, tuple(new[v] for v in old.returns))

    body = block(module.main.body)
    results = tuple(map(cut, body.returns))
    return replace(module, functions=(replace(module.main, body=body, result_shardings=results),))


def check_agreement(module: Module, pipeline: str, arguments: list[Array] | None = None) -> None:
    """Check that the program of the pipeline is valid and computes the results of the module."""
    program = Pipeline.parse(pipeline)(module, lambda step, before, after, _: verify(after))
    if currently_in_test_context():
        note(f"{module}\n{program}")
    assert program.main.spmd
    if arguments is None:
        arguments = random_arguments(module, whole=True)
    want, got = run(module, arguments), run(program, arguments)
    tolerance = tolerance_of(module)
    if not are_close(want, got, tolerance):
        # Comparisons, rounding and division by zero amplify differences in the last bit.
        assume(is_stable(module, arguments, want, tolerance))
        for a, b in zip(want, got, strict=True):
            np.testing.assert_array_equal(b, a)
