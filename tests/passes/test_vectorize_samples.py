"""Every operation many times at once does what it does one at a time."""

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from shardir.factors import Kind
from shardir.interpret import evaluate
from shardir.ir import Module
from shardir.passes.vectorize import vectorize
from shardir.types import FLOATS, TensorType
from shardir.verify import verify
from tests.samples import SAMPLES
from tests.sampling import Array, Sample

SIZE = 3
TAKING = [sample for sample in SAMPLES if sample.operands]


def choices(count: int) -> Iterator[tuple[bool, ...]]:
    """Which operands are batched: any of a few, of many only one or all."""
    for chosen in product((True, False), repeat=count):
        if sum(chosen) in (1, count) or (any(chosen) and count <= 3):
            yield chosen


def slices(arrays: Sequence[Array], batched: Sequence[bool], i: int) -> list[Array]:
    return [np.asarray(x[i]) if flag else x for x, flag in zip(arrays, batched, strict=True)]


def same(made: Array, expected: Sequence[Array], type: TensorType) -> None:
    """Equal, but for the order in which sums were taken."""
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
def test_it_is_the_loop_over_slices(sample: Sample) -> None:
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
            if got.ndim == outs[0].ndim:  # a result that depends on nothing that differs
                got = np.stack([got] * SIZE)
            same(got, outs, value.type)


UNLIKE = 11
"""A size that no dimension of a sample has."""
LOOPS = [sample for sample in TAKING if sample.spec.factors and not sample.blocks]


@pytest.mark.parametrize("sample", LOOPS, ids=lambda sample: sample.id)
def test_the_new_dimension_is_a_loop_of_its_own(sample: Sample) -> None:
    """Cut along it, every device works alone: no operation gathers or exchanges."""
    function = sample.function()
    many = vectorize(function, [True] * len(sample.operands), UNLIKE)
    for op in many.body.ops:
        rule = op.factors()
        if rule is None:
            assert op.name in ("constant", "iota", "reshape")
            continue
        own = {
            dims[0][0]
            for value, dims in zip(op.tensors, rule.tensors, strict=True)
            if dims and dims[0] and value.type.shape[0] == UNLIKE
        }
        assert all(rule.factors[i].kind is Kind.PASS for i in own)
