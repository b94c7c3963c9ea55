"""Tangents of every operation agree with finite differences, cotangents with tangents."""

import numpy as np
import pytest

from shardir import ops
from shardir.interpret.interpreter import evaluate
from shardir.ir.module import Module
from shardir.passes.autodiff.jvp import jvp
from shardir.passes.autodiff.vjp import vjp
from shardir.verify.verifier import verify
from tests.derivatives import check_tangents, random_like
from tests.dtype_groups import INEXACT
from tests.op_sample import Sample
from tests.samples import SAMPLES, some_of_each

pytestmark = some_of_each

# Calls are inlined before.
WITHOUT_DERIVATIVE = (ops.schur, ops.call)
MOVING = [
    sample
    for sample in SAMPLES
    if not sample.spec.spmd
    and sample.spec not in WITHOUT_DERIVATIVE
    and any(type.dtype in INEXACT for type in sample.operands)
    and any(value.type.dtype in INEXACT for value in sample.function().body.returns)
]
SMOOTH = [sample for sample in MOVING if sample.smooth]
# As in JAX, windows out of bounds are clamped, also of tangents, and have no cotangent.
PAIRED = [
    sample
    for sample in MOVING
    if not sample.blocks and (sample.smooth or sample.spec is not ops.gather)
]


@pytest.mark.parametrize("sample", SMOOTH, ids=lambda sample: sample.id)
def test_tangents_agree_with_differences(sample: Sample) -> None:
    wide = sample.widened()
    check_tangents(wide.function(), wide.arrays())


@pytest.mark.parametrize("sample", PAIRED, ids=lambda sample: sample.id)
def test_tangents_pair_with_cotangents(sample: Sample) -> None:
    """The inner product of the cotangent and the tangent of the results equals that of the
    operands.
    """
    wide = sample.widened()
    function, args = wide.function(), wide.arrays()
    wrt = [i for i, type in enumerate(wide.operands) if type.dtype in INEXACT]
    ahead, back = jvp(function, wrt), vjp(function, wrt)
    verify(Module((), (ahead,)))
    rng = np.random.default_rng(1)
    tangents = [random_like(rng, wide.operands[i]) for i in wrt]
    given = [random_like(rng, p.type) for p in back.body.params[len(args) :]]
    plain = len(function.body.returns)

    made = evaluate(ahead, [*args, *tangents])[plain:]
    gradients = evaluate(back, [*args, *given])[plain:]

    gained = sum(np.sum(g * t).real for g, t in zip(given, made, strict=True))
    seen = sum(np.sum(g * t).real for g, t in zip(gradients, tangents, strict=True))
    np.testing.assert_allclose(gained, seen, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("sample", MOVING, ids=lambda sample: sample.id)
def test_tangents_have_the_types_of_the_operation(sample: Sample) -> None:
    function = sample.function()
    wrt = [i for i, type in enumerate(sample.operands) if type.dtype in INEXACT]
    for chosen in ([i] for i in wrt):
        ahead = jvp(function, chosen)
        verify(Module((), (ahead,)))
        moving = [v.type for v in function.body.returns if v.type.dtype in INEXACT]
        assert [v.type for v in ahead.body.returns[len(function.body.returns) :]] == moving
