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
from shardir.ir.module import Block, Module, Op, Value
from shardir.ir.sharding import Sharding
from shardir.passes import Pipeline
from shardir.verify.verifier import verify
from tests.programs.shardings import shardings

Array = npt.NDArray[Any]


def reject_the_simplest(data: st.DataObject) -> None:
    """Reject what hypothesis draws first, where each number is 0, and few of the other draws.

    Where it tries one or two programs for each operation, all are random ones then.
    """
    assume(data.draw(st.integers(0, 15)))


def annotated(data: st.DataObject, module: Module, chosen: Callable[[Value], bool]) -> Module:
    """The module with random closed shardings on values that are chosen, and on results."""
    (mesh,) = module.meshes
    new: dict[Value, Value] = {}

    def cut(value: Value) -> Sharding | None:
        if not chosen(value):
            return None
        # Keys cannot be added up.
        pending = value.type.dtype != "key" and data.draw(st.integers(0, 9)) == 0
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


def must_agree(module: Module, pipeline: str, arguments: list[Array] | None = None) -> None:
    """The pipeline's program is valid and gives the numbers of the module."""
    program = Pipeline.parse(pipeline)(module, lambda step, before, after, _: verify(after))
    if currently_in_test_context():
        note(f"{module}\n{program}")
    assert program.main.spmd
    if arguments is None:
        arguments = random_arguments(module, whole=True)
    want, got = run(module, arguments), run(program, arguments)
    tolerance = tolerance_of(module)
    if not are_close(want, got, tolerance):
        # A comparison, a rounding or a division by nothing makes much of the last bit.
        assume(is_stable(module, arguments, want, tolerance))
        for a, b in zip(want, got, strict=True):
            np.testing.assert_array_equal(b, a)
