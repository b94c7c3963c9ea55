"""The batched form of every operation agrees with one application per example."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from shardir.interpret.interpreter import evaluate
from shardir.ir.builder import substitute
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module, Value
from shardir.ir.sharding import Axis, DimSharding, Sharding
from shardir.ir.types import TensorType
from shardir.ops.random.random_bits import is_draw_from_rbg
from shardir.passes import Pipeline
from shardir.passes.batching.vectorize import vectorize
from shardir.verify.verifier import verify
from tests.dtype_groups import FLOATS
from tests.op_sample import Array, Sample
from tests.samples import ALL_SAMPLES, some_of_each

pytestmark = some_of_each

SIZE = 3
MESH = Mesh("grid", (("batch", 2),))
TAKING = [
    sample
    for sample in ALL_SAMPLES
    # In a batch, draws from single keys of four words share the first key of the batch. Calls are
    # inlined before.
    if sample.operands
    and not sample.spec.inlined_by
    and not any(map(is_draw_from_rbg, sample.function().body.ops))
]


def choices(count: int) -> Iterator[tuple[bool, ...]]:
    """Return which operands are batched: any subset of few operands, one or all of many."""
    for chosen in product((True, False), repeat=count):
        if sum(chosen) in (1, count) or (any(chosen) and count <= 3):
            yield chosen


def slices(arrays: Sequence[Array], batched: Sequence[bool], i: int) -> list[Array]:
    return [np.asarray(x[i]) if flag else x for x, flag in zip(arrays, batched, strict=True)]


def same(made: Array, expected: Sequence[Array], type: TensorType) -> None:
    """Compare results, with a tolerance for sums in another order."""
    stacked = np.stack(expected)
    assert made.dtype == stacked.dtype
    if type.dtype in (*FLOATS, "c64", "c128"):
        rounding = {"f16": 2e-3, "bf16": 2e-2}.get(type.dtype, 2e-6)
        wide = np.complex128 if type.numpy.kind == "c" else np.float64
        np.testing.assert_allclose(
            made.astype(wide), stacked.astype(wide), rtol=rounding, atol=rounding
        )
    else:
        np.testing.assert_array_equal(made, stacked)


@pytest.mark.parametrize("sample", TAKING, ids=lambda sample: sample.id)
def test_results_agree_with_a_loop_over_slices(sample: Sample) -> None:
    function = sample.function()
    seeds = [sample.arrays(seed) for seed in range(SIZE)]
    for batched in choices(len(sample.operands)):
        args = [
            np.stack([seed[i] for seed in seeds]) if flag else seeds[0][i]
            for i, flag in enumerate(batched)
        ]
        many = vectorize(function, batched, SIZE)
        verify(Module((), (many,)))
        made = evaluate(many, args)
        alone = [evaluate(function, slices(args, batched, i)) for i in range(SIZE)]
        for n, value in enumerate(function.body.returns):
            outs = [results[n] for results in alone]
            got: npt.NDArray[np.generic] = made[n]
            if got.ndim == outs[0].ndim:  # a result that depends on no batched operand
                got = np.stack([got] * SIZE)
            same(got, outs, value.type)


def is_grouped(sample: Sample) -> bool:
    """Return whether a group is the major part of the dimension that takes the batch."""
    return any(sample.attrs.get(name, 1) > 1 for name in ("groups", "batch_groups"))


STAYING = [
    sample
    for sample in TAKING
    if not is_grouped(sample) and all(type.size for type in sample.operands)
]


@pytest.mark.parametrize("sample", STAYING, ids=lambda sample: sample.id)
def test_a_sharded_batch_is_not_moved(sample: Sample) -> None:
    """The devices communicate only whether any of them continues a loop."""
    plain = sample.function()
    for batched in choices(len(sample.operands)):
        many = vectorize(plain, batched, 4)
        params = zip(many.body.params, batched, strict=True)
        cut = {x: replace(x, sharding=shard_first_dimension(x)) for x, flag in params if flag}
        results = tuple(
            shard_first_dimension(y) if y.type.rank > old.type.rank else None
            for y, old in zip(many.body.returns, plain.body.returns, strict=True)
        )
        function = replace(many, body=substitute(many.body, cut), result_shardings=results)
        made = Pipeline.parse("propagate,reshard,partition")(Module((MESH,), (function,)))
        exchanged = {op.name for op in made.main.body.walk() if op.spec.collective}
        assert exchanged <= ({"all-reduce"} if sample.spec.name == "while" else set())


def shard_first_dimension(value: Value) -> Sharding:
    """Shard the first dimension in two, and no other."""
    whole = DimSharding((), open=False)
    first = DimSharding((Axis("batch", 1, 2),), open=False)
    return Sharding(MESH.name, (first, *[whole] * (value.type.rank - 1)))
