"""Rules against the reference: random operations, random layouts, equal to the bit."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shardir.backends.cpu.kernel_api import Rule
from shardir.ir.builder import Builder
from shardir.ir.mesh import Mesh
from shardir.ir.module import Op
from tests.backends.cpu.kernels.random_layouts import Array, laid_out, random_of
from tests.backends.cpu.phase_runner import lower_and_run
from tests.samplers import SAMPLERS, Scope

SIZES = (1, 2, 3, 4, 7, 20)
Change = Callable[[Op, list[Array]], list[Array]]


@st.composite
def operations(draw: st.DrawFn, names: Sequence[str], sizes: Sequence[int] = SIZES) -> Op:
    """One operation with random types and attributes."""
    b = Builder()
    name = draw(st.sampled_from(list(names)))
    SAMPLERS[name](Scope(draw, b, Mesh("m", (("a", 1),)), sizes=sizes))
    return next(op for op in reversed(b.ops) if op.name == name)


def operands_of(op: Op, seed: int) -> list[Array]:
    """Any numbers of the operands' types."""
    return [random_of(v.type.dtype, v.type.shape, seed + i) for i, v in enumerate(op.operands)]


def expected(op: Op, arrays: Sequence[Array]) -> list[Array]:
    """What the reference makes of them."""
    types = tuple(v.type for v in op.results)
    result = types[0] if len(types) == 1 else types
    assert op.spec.reference is not None
    with np.errstate(all="ignore"):
        made = op.spec.reference(*arrays, result=result, **op.attrs)
    return list(made) if isinstance(made, tuple) else [np.asarray(made)]


def check(
    data: st.DataObject,
    rules: Mapping[str, Rule],
    op: Op,
    change: Change = lambda op, arrays: arrays,
    tolerance: float = 0.0,
) -> bool:
    """Run an operation on random operands that lie in any way; whether there are phases for it."""
    arrays = change(op, operands_of(op, data.draw(st.integers(0, 9), "seed")))
    wanted = expected(op, arrays)
    operands = [data.draw(laid_out(array), "operand") for array in arrays]
    outs = [data.draw(laid_out(np.zeros(w.shape, w.dtype)), "result") for w in wanted]
    phases = lower_and_run(rules[op.name], op, operands, outs, data.draw(st.sampled_from([1, 3])))
    if phases is None:
        return False
    for out, want in zip(outs, wanted, strict=True):
        if tolerance:
            np.testing.assert_allclose(out, want, tolerance)
        else:
            assert_same_bits(out, want)
    return True


def assert_same_bits(out: Any, want: Any, what: str = "") -> None:
    """Equal with the signs of zeros; any NaN equals any other."""
    with np.errstate(invalid="ignore"):  # NumPy warns of NaNs that signal.
        _assert_same_bits(out, want, what)


def _assert_same_bits(out: Any, want: Any, what: str) -> None:
    assert (out.shape, out.dtype) == (want.shape, want.dtype)
    if want.dtype.itemsize == 2 and want.dtype.kind not in "iu":
        out, want = out.astype(np.float32), want.astype(np.float32)
    np.testing.assert_array_equal(out, want, what)
    if want.dtype.kind not in "biu":
        for part in ("real", "imag") if want.dtype.kind == "c" else ("real",):
            a, b = (np.asarray(getattr(each, part)) for each in (out, want))
            numbers = ~np.isnan(b.astype(np.float64))
            np.testing.assert_array_equal(np.signbit(a)[numbers], np.signbit(b)[numbers])
