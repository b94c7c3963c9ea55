"""Comparison of lowering rules with the reference: random operations and layouts, equal bits."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shardir.backends.cpu.kernel_api import Rule
from shardir.frontend.random_programs.scope import SAMPLERS, Scope
from shardir.ir.builder import Builder
from shardir.ir.mesh import Mesh
from shardir.ir.module import Op
from tests.backends.cpu.kernels.random_layouts import Array, random_array, random_layout
from tests.backends.cpu.phase_runner import lower_and_run
from tests.programs.hypothesis_choices import HypothesisChoices

SIZES = (1, 2, 3, 4, 7, 20)
OperandChange = Callable[[Op, list[Array]], list[Array]]


@st.composite
def random_operations(draw: st.DrawFn, names: Sequence[str], sizes: Sequence[int] = SIZES) -> Op:
    """Draw an operation with random types and attributes."""
    b = Builder()
    name = draw(st.sampled_from(list(names)))
    SAMPLERS[name](Scope(HypothesisChoices(draw), b, Mesh("m", (("a", 1),)), sizes=sizes))
    return next(op for op in reversed(b.ops) if op.name == name)


def random_operands(op: Op, seed: int) -> list[Array]:
    """Return random arrays of the operand types."""
    return [random_array(v.type.dtype, v.type.shape, seed + i) for i, v in enumerate(op.operands)]


def reference_results(op: Op, arrays: Sequence[Array]) -> list[Array]:
    """Return the results of the reference."""
    types = tuple(v.type for v in op.results)
    result = types[0] if len(types) == 1 else types
    assert op.spec.reference is not None
    with np.errstate(all="ignore"):
        made = op.spec.reference(*arrays, result=result, **op.rule_arguments)
    return list(made) if isinstance(made, tuple) else [np.asarray(made)]


def check_against_reference(
    data: st.DataObject,
    rules: Mapping[str, Rule],
    op: Op,
    change: OperandChange = lambda op, arrays: arrays,
    tolerance: float = 0.0,
) -> bool:
    """Run an operation on random operands and layouts; return whether the rule supports it."""
    arrays = change(op, random_operands(op, data.draw(st.integers(0, 9), "seed")))
    expected = reference_results(op, arrays)
    operands = [data.draw(random_layout(array), "operand") for array in arrays]
    outs = [data.draw(random_layout(np.zeros(w.shape, w.dtype)), "result") for w in expected]
    phases = lower_and_run(rules[op.name], op, operands, outs, data.draw(st.sampled_from([1, 3])))
    if phases is None:
        return False
    for out, want in zip(outs, expected, strict=True):
        if tolerance:
            np.testing.assert_allclose(out, want, tolerance)
        else:
            assert_equal_bits(out, want)
    return True


def assert_equal_bits(out: Any, want: Any, what: str = "") -> None:
    """Assert that elements and signs of zeros are equal; any two NaNs are equal."""
    with np.errstate(invalid="ignore"):  # signaling NaNs give a warning
        _assert_equal_bits(out, want, what)


def _assert_equal_bits(out: Any, want: Any, what: str) -> None:
    assert (out.shape, out.dtype) == (want.shape, want.dtype)
    if want.dtype.itemsize == 2 and want.dtype.kind not in "iu":
        out, want = out.astype(np.float32), want.astype(np.float32)
    np.testing.assert_array_equal(out, want, what)
    if want.dtype.kind not in "biu":
        for part in ("real", "imag") if want.dtype.kind == "c" else ("real",):
            a, b = (np.asarray(getattr(each, part)) for each in (out, want))
            not_nan = ~np.isnan(b.astype(np.float64))
            np.testing.assert_array_equal(np.signbit(a)[not_nan], np.signbit(b)[not_nan])
