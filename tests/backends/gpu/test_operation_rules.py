"""Rules of operations: torch gives the reference results, or the operation is rejected."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from shardir.backends.emission import EmissionError
from shardir.backends.gpu import rules as rules
from shardir.backends.gpu.library.moving import copy_permuted
from shardir.backends.gpu.lowering import REFUSED_OPERATIONS, RULES
from shardir.backends.gpu.vendored.arrays import DTYPES, to_numpy
from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import RELATIVE_TOLERANCES, relative_distance
from shardir.ir.builder import Builder
from shardir.ir.module import Function
from shardir.ir.operation import OPS
from shardir.ir.types import TensorType
from shardir.text.parser import parse
from tests.backends.gpu.gpu_op_restrictions import restrict_to_gpu_kernels
from tests.backends.gpu.program_execution import program_text, run_text
from tests.op_sample import Sample, t
from tests.samples import SAMPLES, samples_of

pytestmark = pytest.mark.sample(2)

Array = npt.NDArray[Any]
FACTORIZATIONS = {"svd": ("u", "vh"), "eigh": ("vectors",), "eig": ("vectors",), "qr": ("q", "r")}
"""Operations whose result vectors are determined only up to their direction."""
SAMPLED_OPERATIONS = sorted({sample.spec.name for sample in SAMPLES})


def test_every_operation_has_a_rule_or_is_rejected() -> None:
    assert sorted([*RULES, *REFUSED_OPERATIONS]) == sorted(OPS)


@pytest.mark.parametrize(
    "name",
    [name for name in SAMPLED_OPERATIONS if name not in {*FACTORIZATIONS, *REFUSED_OPERATIONS}],
)
def test_operations_give_the_reference_results(name: str) -> None:
    for sample in samples_of(name):
        want, got = reference_and_result(sample)
        for a, b, type in zip(want, got, result_types(sample), strict=True):
            assert relative_distance(a, b, RELATIVE_TOLERANCES.get(type.dtype, 0.0)) <= 1, (
                sample.id,
                a,
                b,
            )


@pytest.mark.parametrize("name", sorted(FACTORIZATIONS))
def test_factorizations_agree_with_the_reference_up_to_directions(name: str) -> None:
    for sample in samples_of(name):
        (x,) = sample.arrays()
        want, got = reference_and_result(sample)
        for a, b in zip(want, got, strict=True):
            size = np.abs(a).max()
            np.testing.assert_allclose(np.abs(b), np.abs(a), atol=1e-3 * size, err_msg=sample.id)
        np.testing.assert_allclose(*product_of_factors(name, x, got), atol=1e-4, err_msg=sample.id)


def reference_and_result(sample: Sample) -> tuple[list[Array], list[Array]]:
    module, arrays = sample.module(), sample.arrays()
    want, got = run(module, arrays), run_text(module, arrays)
    for a, b in zip(want, got, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), sample.id
    return want, got


def result_types(sample: Sample) -> list[TensorType]:
    return [value.type for value in sample.module().main.body.returns]


def product_of_factors(name: str, x: Array, results: Sequence[Array]) -> tuple[Array, Array]:
    """Return the product of the factors and the matrix that it must equal."""
    if name == "qr":
        return results[0] @ results[1], x
    if len(results) == 1:
        return x, x
    if name == "svd":
        u, values, vh = results
        count = values.shape[-1]
        return (u[..., :count] * values[..., None, :]) @ vh[..., :count, :], x
    values, vectors = results
    if name == "eigh":
        low = np.tril(x, -1)
        diagonal = np.einsum("...ii->...i", x).real[..., None] * np.eye(x.shape[-1])
        x = low + np.swapaxes(low.conj(), -1, -2) + diagonal
    return x @ vectors, vectors * values[..., None, :]


def check_operation(name: str, dtype: str, *arrays: Any, **attrs: Any) -> Array:
    """Run one operation with the emitted text; its result must equal the reference exactly."""
    given = [np.asarray(array) for array in arrays]
    types = [TensorType(array.shape, dtype) for array in given]
    sample = Sample(OPS[name], tuple(types), attrs)
    module = sample.module()
    edge_values = [array.astype(type.numpy) for array, type in zip(given, types, strict=True)]
    (want,), (got,) = run(module, edge_values), run_text(module, edge_values)
    assert_equal_arrays(got, want, f"{name} of {dtype}")
    return got


def assert_equal_arrays(got: Array, want: Array, what: str) -> None:
    """Assert that arrays are equal; bf16, which NumPy cannot compare, is widened."""
    wide = np.float64 if got.dtype.itemsize == 2 and got.dtype.kind not in "iuf" else got.dtype
    np.testing.assert_array_equal(got.astype(wide), want.astype(wide), err_msg=what)


UNSIGNED_INTEGERS = ("u8", "u16", "u32", "u64")
INTEGERS = ("i8", "i16", "i32", "i64", *UNSIGNED_INTEGERS)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_operations_are_exact_at_the_limits_of_the_type(dtype: str) -> None:
    limits = np.iinfo(TensorType((), dtype).numpy)
    edges = [limits.min, limits.min + 1, 0, 1, 2, 3, 7, limits.max // 2, limits.max - 1, limits.max]
    if limits.min < 0:
        edges += [-1, -2, -7]
    edge_values = np.array(edges, dtype=limits.dtype)
    x, y = (side.reshape(-1) for side in np.meshgrid(edge_values, edge_values))
    for name in ("add", "sub", "mul", "div", "rem", "maximum", "minimum", "and", "or", "xor"):
        check_operation(name, dtype, x, y)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        check_operation(name, dtype, x, y)
    for name in ("neg", "abs", "sign", "not", "popcnt", "clz"):
        check_operation(name, dtype, edge_values)
    few = np.array([0, 1, 2, 3, 5, 9, 70, limits.max], limits.dtype)
    x, y = (side.reshape(-1) for side in np.meshgrid(edge_values, few))
    for name in ("shift_left", "shift_right_logical", "shift_right_arithmetic", "pow"):
        check_operation(name, dtype, x, y)
    check_operation("sum", dtype, edge_values, dims=(0,))
    check_operation("prod", dtype, edge_values, dims=(0,))
    for name in ("max", "min"):
        check_operation(name, dtype, edge_values.reshape(-1, 1), dims=(0,))
    for name in ("cumsum", "cumprod", "cummax", "cummin"):
        check_operation(name, dtype, edge_values, dim=0, reverse=True)
    check_operation("sort", dtype, edge_values[::-1], dim=0)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_conversions_of_floats_to_integers_saturate_as_in_the_reference(dtype: str) -> None:
    floats = [0.0, -0.5, 1.9, -1.9, 3e9, -3e9, 1e19, 2.0**63, 2.0**64, 1e30, -1e30]
    x = np.array([*floats, np.inf, -np.inf, np.nan])
    for source in ("f16", "f32", "f64"):
        check_conversion(x, source, dtype)


@pytest.mark.parametrize("source", ["i32", "i64", "u32", "u64", "f64"])
def test_conversions_of_wide_types_round_once(source: str) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**63, 200, np.uint64)
    x = bits.astype(np.float64) / 2**40 if source == "f64" else bits
    for to in ("bf16", "f16", "f32", "c64", "bool"):
        check_conversion(x, source, to)


def check_conversion(x: Array, source: str, to: str) -> None:
    with np.errstate(all="ignore"):
        x = x.astype(TensorType((), source).numpy)
    sample = Sample(OPS["convert"], (t(source, x.size),), result=t(to, x.size))
    (want,), (got,) = run(sample.module(), [x]), run_text(sample.module(), [x])
    assert_equal_arrays(got, want, f"{source} to {to}")


def test_signed_zeros_infinities_and_nan_are_preserved() -> None:
    x = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan])
    for dtype in ("f16", "bf16", "f32", "f64"):
        for name in ("sign", "abs", "neg", "round", "floor", "ceil", "is_finite", "cbrt"):
            check_operation(
                name, dtype, x if name != "cbrt" else np.array([0.0, -0.0, 8.0, -np.inf])
            )
        a, b = (side.reshape(-1) for side in np.meshgrid(x, x))
        for name in ("maximum", "minimum", "nextafter", "rem", "lt", "eq"):
            check_operation(name, dtype, a, b)
        check_operation("sort", dtype, x, dim=0)


@pytest.mark.parametrize("as_xla", ["true", "false"])
def test_erf_inv_with_as_xla_uses_the_approximation_of_xla(as_xla: str) -> None:
    text = f"""\
func @f(%x: f32[200]) -> (f32[200]) {{
  %y = erf_inv(%x, as_xla={as_xla}) : f32[200]
  return %y
}}
"""
    x = np.nextafter(np.linspace(-1, 1, 200).astype(np.float32), np.float32(0))
    module = parse(text)
    np.testing.assert_array_max_ulp(run_text(module, [x])[0], run(module, [x])[0], 8)


def test_the_largest_f32_constant_stays_finite() -> None:
    """The shortest decimal text of the largest f32 is greater than it."""
    text = """\
func @f(%x: f32[3], %p: bool[3]) -> (f32[3]) {
  %c = constant(value=3.4028234663852886e+38) : f32[3]
  %y = select(%p, %c, %x) : f32[3]
  return %y
}
"""
    x = np.array([1, 2, -3], np.float32)
    (results,) = run_text(parse(text), [x, np.array([True, False, True])])
    assert results.tolist() == [np.finfo(np.float32).max, 2, np.finfo(np.float32).max]


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS])
def test_window_reductions_of_integers_are_exact(dtype: str) -> None:
    rng = np.random.default_rng(0)
    type = TensorType((7,), dtype)
    high = 2 if dtype == "bool" else 2**63
    x = rng.integers(0, high, 7, np.uint64).astype(type.numpy)
    attrs = {
        "window": (3,),
        "strides": (2,),
        "padding": ((1, 2),),
        "base_dilation": (1,),
        "window_dilation": (1,),
    }
    for op in ("add", "max", "min") if dtype == "bool" else ("add", "mul", "max", "min"):
        check_operation("reduce_window", dtype, x, op=op, **attrs)
    source = rng.integers(0, high, 4, np.uint64).astype(type.numpy)
    for op in ("max", "min") if dtype != "bool" else ():
        check_operation("select_and_scatter", dtype, x, source, op=op, **attrs)


def test_products_of_large_integers_are_exact() -> None:
    rng = np.random.default_rng(0)
    for dtype in ("i8", "u8", "i32", "u32", "i64", "u64"):
        type = TensorType((), dtype)
        x, y = (rng.integers(0, 2**63, shape, np.uint64).astype(type.numpy)
                for shape in ((5, 40), (40, 3)))  # fmt: skip
        for dims in ("ij,jk->ik", "ij,jk->ki", "ij,jk->i", "ij,jk->j"):
            check_operation("dot", dtype, x, y, dims=dims)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize(
    "dims", ["bi,ih->bh", "ib,hi->hb", "abi,ih->abh", "abi,abh->ih", "baij,bjk->ikab", "ai,aj->a"]
)
def test_16_bit_floats_are_contracted_in_f32(dims: str, dtype: str) -> None:
    size = dict(zip("abhijk", (2, 3, 4, 5, 6, 7), strict=True))
    operands, output = dims.split("->")
    types = (t(dtype, *(size[d] for d in term)) for term in operands.split(","))
    sample = Sample(
        OPS["dot"], tuple(types), {"dims": dims}, result=t("f32", *(size[d] for d in output))
    )
    (want,), (got,) = reference_and_result(sample)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    wide = "_widely(" in program_text(sample.function())
    assert wide is (dims != "ai,aj->a")


@pytest.mark.parametrize("name", ["callback", "opaque"])
def test_rejected_operations_state_an_alternative(name: str) -> None:
    b = Builder()
    x = b.param(t("f32", 2), "x")
    more: dict[str, Any] = (
        {"function": "tell"}
        if name == "callback"
        else {"operation": "my.thing", "head": "", "attributes": "", "types": ""}
    )
    y = b.emit(OPS[name], x, result=(t("f32", 2),), **more)
    results = y if isinstance(y, tuple) else (y,)
    function = Function("f", b.block([x], list(results)), (None,) * len(results))
    with pytest.raises(EmissionError) as caught:
        program_text(function)
    why, instead = REFUSED_OPERATIONS[name]
    assert str(caught.value) == f"{name} %{results[0].name}: {why}; {instead}"


def test_the_restricted_context_rejects_operations_without_gpu_kernels() -> None:
    wide_unsigned, rows = torch.ones(3, dtype=torch.uint16), torch.ones(2, 2, dtype=torch.int32)
    with restrict_to_gpu_kernels():
        assert wide_unsigned.view(torch.int16)[[2, 0]].shape == (2,)
        with pytest.raises(AssertionError, match=r"is not there for \['torch.uint16'\]"):
            wide_unsigned[[2, 0]]
        with pytest.raises(AssertionError, match="multiplies no"):
            rows @ rows
    with (
        restrict_to_gpu_kernels(allow_host_reads=False),
        pytest.raises(AssertionError, match="makes the host wait"),
    ):
        rows.sum().item()


@pytest.mark.parametrize("dtype", ["bf16", "f32", "bool", "u16", "c64", "f64"])
@pytest.mark.parametrize("shape", [(2, 3, 4, 16), (2, 3, 4, 5), (1, 2, 1, 8), (0, 3, 4, 16)])
def test_permuted_copies_have_the_elements_of_permuted_views(
    dtype: str, shape: tuple[int, ...]
) -> None:
    whole = torch.arange(int(np.prod(shape)), dtype=torch.int64).reshape(shape).to(DTYPES[dtype])
    for x in (whole, whole[..., 1:], whole[1:], whole.transpose(0, 1)):
        for perm in itertools.permutations(range(4)):
            if 3 not in perm[-2:]:
                continue
            copy = copy_permuted(x, list(perm))
            assert copy.shape == x.permute(perm).shape
            assert to_numpy(copy).tobytes() == to_numpy(x.permute(perm)).tobytes()
            # A batched product must be able to merge the batch dimensions.
            matrices = copy if copy.stride(-1) == 1 or not copy.numel() else copy.mT
            assert matrices.is_contiguous()
