"""Whatever the shardings, the program that the devices run computes what the whole one does.

Random programs over all operations, random shardings on meshes of one, two and three dimensions;
the partitioned program runs on a simulated mesh. `pytest --long` tries thousands.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, note, settings, strategies as st

from shardir.interpret import run
from shardir.ir import Block, Module, Op, Value
from shardir.passes import Pipeline
from shardir.placement import Sharding
from shardir.types import COMPLEX, FLOATS
from shardir.verify import verify
from tests.samples import SAMPLES
from tests.sampling import Sample
from tests.shardings import MESHES, shardings
from tests.strategies import modules

Array = npt.NDArray[Any]
EXAMPLES = max(settings().max_examples // 40, 1)
"""How many ways each sample of an operation is cut."""
ROUNDING = {"f16": 2e-2, "bf16": 1e-1, "f32": 2e-4, "c64": 2e-4, "f64": 1e-9, "c128": 1e-9}
"""How far results may differ, relative to the largest, when sums are taken in another order."""


@given(st.data())
def test_programs_with_any_shardings(data: st.DataObject) -> None:
    module = annotated(data, data.draw(modules()), lambda _: True)
    agree(module, "reshard,partition")


@given(st.data())
def test_programs_with_some_shardings(data: st.DataObject) -> None:
    some = st.integers(0, 3).map(lambda n: n == 0)
    module = annotated(data, data.draw(modules()), lambda _: data.draw(some))
    agree(module, "propagate,reshard,partition,cse,dce")


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_every_operation_with_any_shardings(sample: Sample, data: st.DataObject) -> None:
    mesh = data.draw(st.sampled_from(MESHES))
    module = annotated(data, Module((mesh,), (sample.function(),)), lambda _: True)
    agree(module, "reshard,partition", sample.arrays())


def annotated(data: st.DataObject, module: Module, chosen: Callable[[Value], bool]) -> Module:
    """The module with random closed shardings on values that are chosen, and on results."""
    (mesh,) = module.meshes
    new: dict[Value, Value] = {}

    def cut(value: Value) -> Sharding | None:
        if not chosen(value):
            return None
        return data.draw(shardings(mesh, value.type.shape, uneven=True))

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
    return replace(module, functions=(replace(module.main, body=body, results=results),))


def agree(module: Module, pipeline: str, arguments: list[Array] | None = None) -> None:
    """The pipeline's program is valid and gives the numbers of the module."""
    note(str(module))
    program = Pipeline.parse(pipeline)(module)
    note(str(program))
    verify(program)
    assert program.main.spmd
    if arguments is None:
        arguments = random_arguments(module, 0)
    want, got = run(module, arguments), run(program, arguments)
    tolerance = rounding(module)
    if not all(close(a, b, tolerance) for a, b in zip(want, got, strict=True)):
        # A comparison, a rounding or a division by nothing makes much of the last bit.
        assume(steady(module, arguments, want, tolerance))
        for a, b in zip(want, got, strict=True):
            np.testing.assert_array_equal(b, a)


def rounding(module: Module) -> float:
    """The tolerance for the narrowest type that the program computes in."""
    dtypes = {v.type.dtype for op in module.main.body.walk() for v in op.tensors}
    return max((ROUNDING[d] for d in sorted(dtypes) if d in ROUNDING), default=0.0)


def close(want: Array, got: Array, tolerance: float) -> bool:
    if want.dtype.kind in "biu":
        return np.array_equal(want, got)
    a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (want, got))
    finite = np.abs(a[np.isfinite(a)])
    scale = finite.max(initial=1.0)
    return np.allclose(b, a, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def steady(module: Module, arguments: list[Array], want: list[Array], tolerance: float) -> bool:
    """Whether arguments that differ in their last digits give nearly the same."""
    for seed in range(1, 6):
        moved = [shaken(x, tolerance, seed) for x in arguments]
        if not all(close(a, b, tolerance) for a, b in zip(want, run(module, moved), strict=True)):
            return False
    return True


def shaken(x: Array, tolerance: float, seed: int) -> Array:
    if x.dtype.kind in "biu":
        return x
    noise = np.random.default_rng(seed).uniform(-1, 1, x.shape)
    return (x * (1 + tolerance / 10 * noise)).astype(x.dtype)


def random_arguments(module: Module, seed: int) -> list[Array]:
    """Small whole numbers, so that plain sums are exact, and any keys."""
    rng = np.random.default_rng(seed)

    def sample(value: Value) -> Array:
        type = value.type
        if type.dtype == "key":
            return rng.integers(0, 2**63, type.shape, np.uint64)
        low = -4 if type.dtype in (*FLOATS, *COMPLEX) or type.dtype.startswith("i") else 0
        high = 2 if type.dtype == "bool" else 5
        return np.asarray(rng.integers(low, high, type.shape)).astype(type.numpy)

    return [sample(param) for param in module.main.body.params]
