"""StableHLO and CHLO operations that become several operations, against StableHLO's interpreter."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jaxlib")

import jax
from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from shardir.interpret.interpreter import evaluate
from shardir.ops.opaque import unknown_operations
from shardir.stablehlo.reader import read
from shardir.verify.verifier import verify

pytestmark = pytest.mark.sample(3)

NAN, INF = float("nan"), float("inf")
FLOATS = [
    0.0,
    -0.0,
    0.49999997,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    1e-40,
    -3e38,
    65520.0,
    1e-7,
    INF,
    -INF,
    NAN,
    3.3,
]
VECTOR = np.array(FLOATS, np.float32)
COUNTS = np.arange(-8, 8, dtype=np.int32) * 123456789
MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4) / 7
T = "tensor<16xf32>"

REFERENCE = {
    "afz": (f"stablehlo.round_nearest_afz %0 : {T}", T, [VECTOR]),
    **{
        f"e{e}m{m}": (f"stablehlo.reduce_precision %0, format = e{e}m{m} : {T}", T, [VECTOR])
        for e, m in ((5, 10), (8, 7), (5, 2), (8, 23), (4, 3), (1, 0), (8, 0))
    },
    "dynamic broadcast": (
        "stablehlo.dynamic_broadcast_in_dim %0, %1, dims = [1] : "
        "(tensor<4xf32>, tensor<2xi32>) -> tensor<3x4xf32>",
        "tensor<3x4xf32>",
        [MATRIX[0], np.array([3, 4], np.int32)],
    ),
    "dynamic reshape": (
        "stablehlo.dynamic_reshape %0, %1 : (tensor<3x4xf32>, tensor<2xi32>) -> tensor<2x6xf32>",
        "tensor<2x6xf32>",
        [MATRIX, np.array([2, 6], np.int32)],
    ),
    "dynamic iota": (
        "stablehlo.dynamic_iota %0, dim = 1 : (tensor<2xi32>) -> tensor<3x4xf32>",
        "tensor<3x4xf32>",
        [np.array([3, 4], np.int32)],
    ),
    "size": (
        "stablehlo.get_dimension_size %0, dim = 1 : (tensor<3x4xf32>) -> tensor<i32>",
        "tensor<i32>",
        [MATRIX],
    ),
}


def program(line: str, result: str, arrays: list[Any]) -> str:
    names = {"float32": "f32", "int32": "i32", "uint32": "ui32", "int8": "i8", "int64": "i64"}
    params = ", ".join(
        f"%{i}: tensor<{''.join(f'{n}x' for n in a.shape)}{names[str(a.dtype)]}>"
        for i, a in enumerate(arrays)
    )
    many = "," in result and result.startswith("(")
    made = ", ".join(f"%y{i}" for i in range(result.count("tensor") if many else 1))
    return (
        f"func.func @main({params}) -> {result} {{\n  {made} = {line}\n"
        f"  return {made} : {result.strip('()')}\n}}\n"
    )


def interpreted(text: str, arrays: list[Any]) -> list[Any]:
    with mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        args = [mlir.ir_attribute(array) for array in arrays]
        return [np.array(result) for result in stablehlo.eval_module(module, args)]


def ours(text: str, arrays: list[Any]) -> list[Any]:
    module = read(text)
    assert not unknown_operations(module), str(module)
    return list(evaluate(module.main, arrays))


@pytest.mark.parametrize("case", REFERENCE)
def test_results_agree_with_the_interpreter_of_stablehlo(case: str) -> None:
    line, result, arrays = REFERENCE[case]
    text = program(line, result, arrays)
    for mine, theirs in zip(ours(text, arrays), interpreted(text, arrays), strict=True):
        np.testing.assert_array_equal(mine, theirs)
        if mine.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(mine), np.signbit(theirs))


COMPARE = {"LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
           "EQ": np.equal, "NE": np.not_equal}  # fmt: skip


def total_order_keys(x: Any) -> Any:
    """Return integers in the total order of floats."""
    bits = x.view(np.int32)
    return np.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


def total(way: str) -> Any:
    return lambda x, y: [COMPARE[way](total_order_keys(x), total_order_keys(y))]


NUMBERS: dict[str, tuple[str, str, list[Any], Callable[..., Any]]] = {
    **{
        f"total {way}": (
            f"stablehlo.compare {way}, %0, %1, TOTALORDER : ({T}, {T}) -> tensor<16xi1>",
            "tensor<16xi1>",
            [VECTOR, VECTOR[::-1].copy()],
            total(way),
        )
        for way in COMPARE
    },
    "square": (f"chlo.square %0 : {T} -> {T}", T, [VECTOR], lambda x: [x * x]),
    "is inf": (
        f"chlo.is_inf %0 : {T} -> tensor<16xi1>",
        "tensor<16xi1>",
        [VECTOR],
        lambda x: [np.isinf(x)],
    ),
    "is +inf": (
        f"chlo.is_pos_inf %0 : {T} -> tensor<16xi1>",
        "tensor<16xi1>",
        [VECTOR],
        lambda x: [np.isposinf(x)],
    ),
    "is -inf": (
        f"chlo.is_neg_inf %0 : {T} -> tensor<16xi1>",
        "tensor<16xi1>",
        [VECTOR],
        lambda x: [np.isneginf(x)],
    ),
    "tan": (f"chlo.tan %0 : {T} -> {T}", T, [VECTOR], lambda x: [np.tan(x)]),
    "mulhi": (
        "chlo.mulhi %0, %1 : tensor<16xi32>, tensor<16xi32> -> tensor<16xi32>",
        "tensor<16xi32>",
        [COUNTS, COUNTS[::-1].copy()],
        lambda x, y: [(x.astype(np.int64) * y >> 32).astype(np.int32)],
    ),
    "like": (
        '"chlo.constant_like"(%0) <{value = 2.5 : f32}> : (tensor<3x4xf32>) -> tensor<3x4xf32>',
        "tensor<3x4xf32>",
        [MATRIX],
        lambda x: [np.full_like(x, 2.5)],
    ),
    "broadcast add": (
        "chlo.broadcast_add %0, %1 : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>",
        "tensor<3x4xf32>",
        [MATRIX, MATRIX[0]],
        lambda x, y: [x + y],
    ),
    "broadcast subtract": (
        "chlo.broadcast_subtract %0, %1 {broadcast_dimensions = array<i64: 0>} "
        ": (tensor<3x4xf32>, tensor<3xf32>) -> tensor<3x4xf32>",
        "tensor<3x4xf32>",
        [MATRIX, MATRIX[:, 0].copy()],
        lambda x, y: [x - y[:, None]],
    ),
    "broadcast divide": (
        "chlo.broadcast_divide %0, %1 : (tensor<f32>, tensor<3x4xf32>) -> tensor<3x4xf32>",
        "tensor<3x4xf32>",
        [np.float32(2), MATRIX + 1],
        lambda x, y: [x / y],
    ),
    "broadcast compare": (
        "chlo.broadcast_compare %0, %1 {comparison_direction = #chlo<comparison_direction LT>} "
        ": (tensor<3x4xf32>, tensor<1x4xf32>) -> tensor<3x4xi1>",
        "tensor<3x4xi1>",
        [MATRIX, MATRIX[1:2]],
        lambda x, y: [x < y],
    ),
    "batch norm": (
        '"stablehlo.batch_norm_inference"(%0, %1, %2, %3, %4) <{epsilon = 1.0e-3 : f32, '
        "feature_index = 1 : i64}> : (tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>, "
        "tensor<4xf32>, tensor<4xf32>) -> tensor<3x4xf32>",
        "tensor<3x4xf32>",
        [MATRIX, MATRIX[0], MATRIX[1], MATRIX[2], MATRIX[1] + 1],
        lambda x, s, o, m, v: [(x - m) / np.sqrt(v + np.float32(1e-3)) * s + o],
    ),
    "training": (
        '"stablehlo.batch_norm_training"(%0, %1, %2) <{epsilon = 1.0e-3 : f32, '
        "feature_index = 1 : i64}> "
        ": (tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>) -> "
        "(tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>)",
        "(tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>)",
        [MATRIX**2, MATRIX[0], MATRIX[1]],
        lambda x, s, o: [(x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3) * s + o, x.mean(0), x.var(0)],
    ),
    "einsum": (
        '"stablehlo.einsum"(%0, %1) <{einsum_config = "ab,cb->ca"}> '
        ": (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x3xf32>",
        "tensor<3x3xf32>",
        [MATRIX, MATRIX + 1],
        lambda x, y: [y @ x.T],
    ),
    "unary einsum": (
        '"stablehlo.unary_einsum"(%0) <{einsum_config = "ab->b"}> : '
        "(tensor<3x4xf32>) -> tensor<4xf32>",
        "tensor<4xf32>",
        [MATRIX],
        lambda x: [x.sum(0)],
    ),
    "index select": (
        '"stablehlo.torch_index_select"(%0, %1) <{batch_dims = 0 : i64, dim = 1 : i64}> '
        ": (tensor<3x4xf32>, tensor<2xi32>) -> tensor<3x2xf32>",
        "tensor<3x2xf32>",
        [MATRIX, np.array([3, 1], np.int32)],
        lambda x, i: [x[:, i]],
    ),
    "scan of products and their sum": (
        '"chlo.scan"(%0, %1, %2) <{dimension = 1 : i64, is_reverse = true, '
        "operandSegmentSizes = array<i32: 2, 1>, resultSegmentSizes = array<i32: 1, 1>}> ({ "
        "^bb0(%x: tensor<3xf32>, %y: tensor<3xf32>, %sum: tensor<3xf32>): "
        "%p = stablehlo.multiply %x, %y : tensor<3xf32> "
        "%new = stablehlo.add %p, %sum : tensor<3xf32> "
        "stablehlo.return %p, %new : tensor<3xf32>, tensor<3xf32> }) "
        ": (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3xf32>) -> (tensor<3x4xf32>, tensor<3xf32>)",
        "(tensor<3x4xf32>, tensor<3xf32>)",
        [MATRIX, MATRIX + 1, MATRIX[:, 0].copy()],
        lambda x, y, c: [x * y, c + (x * y).sum(1)],
    ),
    "scan in the form of attributes": (
        "chlo.scan(%0) inits (%1) dimension=0 attributes {is_associative = true} { "
        "^bb0(%x: tensor<4xf32>, %sum: tensor<4xf32>): "
        "%new = stablehlo.add %x, %sum : tensor<4xf32> "
        "stablehlo.return %new, %new : tensor<4xf32>, tensor<4xf32> } "
        ": (tensor<3x4xf32>, tensor<4xf32>) -> (tensor<3x4xf32>, tensor<4xf32>)",
        "(tensor<3x4xf32>, tensor<4xf32>)",
        [MATRIX, MATRIX[1]],
        lambda x, c: [c + x.cumsum(0), c + x.sum(0)],
    ),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_results_agree_with_numpy(case: str) -> None:
    line, result, arrays, want = NUMBERS[case]
    with np.errstate(all="ignore"):
        expected = want(*arrays)
    for mine, theirs in zip(ours(program(line, result, arrays), arrays), expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=2e-6, atol=1e-6)


def test_a_value_that_a_computation_returns_twice_has_two_names() -> None:
    """A result of a computation may be an operand, which keeps its name."""
    module = read("""\
func.func @main(%x: tensor<4xi32>) -> (tensor<i32>, tensor<i32>, tensor<4xi32>) {
  %i = stablehlo.constant dense<0> : tensor<i32>
  %y:2 = "stablehlo.reduce"(%x, %x, %i, %i) <{dimensions = array<i64: 0>}> ({
    ^bb0(%a: tensor<i32>, %p: tensor<i32>, %b: tensor<i32>, %q: tensor<i32>):
      %s = stablehlo.xor %a, %b : tensor<i32>
      stablehlo.return %s, %s : tensor<i32>, tensor<i32>
  }) : (tensor<4xi32>, tensor<4xi32>, tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>)
  %z = "stablehlo.map"(%x) <{dimensions = array<i64: 0>}> ({
    ^bb0(%a: tensor<i32>):
      stablehlo.return %a : tensor<i32>
  }) : (tensor<4xi32>) -> tensor<4xi32>
  %w = stablehlo.add %x, %z : tensor<4xi32>
  return %y#0, %y#1, %w : tensor<i32>, tensor<i32>, tensor<4xi32>
}
""")
    verify(module)
    x = np.array([3, 1, 2, 9], np.int32)
    first, second, doubled = evaluate(module.main, [x])
    assert (int(first), int(second)) == (9, 9)
    np.testing.assert_array_equal(doubled, 2 * x)


def test_the_gradient_of_batch_norm_agrees_with_jax() -> None:

    x, scale, gradient = MATRIX**2, MATRIX[0] + 1, MATRIX[::-1].copy()
    line = (
        '"stablehlo.batch_norm_grad"(%0, %1, %2, %3, %4) <{epsilon = 1.0e-3 : f32, '
        "feature_index = 1 : i64}> : (tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>, "
        "tensor<4xf32>, tensor<3x4xf32>) -> (tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>)"
    )
    result = "(tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>)"
    arrays = [x, scale, x.mean(0), x.var(0), gradient]

    def normal(x: Any, scale: Any, offset: Any) -> Any:
        return (x - x.mean(0)) / jax.numpy.sqrt(x.var(0) + 1e-3) * scale + offset

    _, pullback = jax.vjp(normal, x, scale, scale)
    for mine, theirs in zip(
        ours(program(line, result, arrays), arrays), pullback(gradient), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


AMOUNTS = """\
func.func @main(%x: tensor<3x4xf32>) -> (tensor<6x4xf32>, tensor<2x2xf32>) {
  %low = stablehlo.constant dense<[1, 0]> : tensor<2xi32>
  %two = stablehlo.constant dense<2> : tensor<2xi32>
  %end = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
  %none = stablehlo.constant dense<0> : tensor<2xi32>
  %high = stablehlo.constant dense<[2, 0]> : tensor<2xi32>
  %z = stablehlo.constant dense<9.0> : tensor<f32>
  %0 = stablehlo.dynamic_pad %x, %z, %low, %high, %none
      : (tensor<3x4xf32>, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>)
      -> tensor<6x4xf32>
  %1 = stablehlo.real_dynamic_slice %x, %none, %end, %two
      : (tensor<3x4xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<2x2xf32>
  return %0, %1 : tensor<6x4xf32>, tensor<2x2xf32>
}
"""


def test_constant_operands_become_attributes() -> None:
    padded, sliced = ours(AMOUNTS, [MATRIX])
    np.testing.assert_array_equal(padded, np.pad(MATRIX, ((1, 2), (0, 0)), constant_values=9))
    np.testing.assert_array_equal(sliced, MATRIX[::2, ::2])


def custom(a: Any, b: Any) -> Any:
    return a + b + a * b


REDUCED = {
    "and": lambda x, n: jax.lax.reduce_and(n, (1,)),
    "or": lambda x, n: jax.lax.reduce_or(n, (0, 1)),
    "xor": lambda x, n: jax.lax.reduce_xor(n, (0,)),
    "xor of bools": lambda x, n: jax.lax.reduce_xor(n > 0, (1,)),
    "custom": lambda x, n: jax.lax.reduce(x, np.float32(0), custom, (0, 1)),
    "two": lambda x, n: jax.lax.reduce(
        (x, n),
        (np.float32(0), np.int32(-99)),
        lambda a, b: (a[0] + b[0], jax.lax.max(a[1], b[1])),
        (1,),
    ),
    "together": lambda x, n: jax.lax.reduce(
        (x, n),
        (np.float32(-np.inf), np.int32(0)),
        lambda a, b: (jax.lax.max(a[0], b[0]), jax.numpy.where(a[0] >= b[0], a[1], b[1])),
        (1,),
    ),
    "running": lambda x, n: jax.lax.cumlogsumexp(x, axis=1),
    "scatter": lambda x, n: x.at[n[0, :2] % 3].subtract(2.0),
}


def run_both(f: Any, *arrays: Any) -> tuple[list[Any], list[Any]]:
    """Return our results and those of JAX for the StableHLO text that JAX makes of a function."""
    text = jax.jit(f, keep_unused=True).lower(*arrays).as_text()
    return ours(text, list(arrays)), jax.tree.leaves(jax.jit(f)(*arrays))


@pytest.mark.parametrize("case", REDUCED)
@pytest.mark.parametrize("columns", [1, 2, 5, 8])
def test_reductions_by_any_computation_agree_with_jax(case: str, columns: int) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(3, columns)).astype(np.float32)
    n = random.integers(-99, 99, (3, columns), np.int32)
    mine, theirs = run_both(REDUCED[case], x, n)
    for one, other in zip(mine, theirs, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def rebuild(form: Any, vectors: Any) -> Any:
    """Return the matrix of a decomposition, whose factors are not unique."""
    return vectors @ form @ vectors.conj().T


SQUARE = np.random.default_rng(1).normal(size=(5, 5)).astype(np.float32)
POSITIVE = SQUARE @ SQUARE.T + 5 * np.eye(5, dtype=np.float32)
DECOMPOSED = {
    "cholesky": lambda a: jax.numpy.linalg.cholesky(a),
    "of no positive matrix": lambda a: jax.numpy.linalg.cholesky(-a),
    "lower": lambda a: jax.scipy.linalg.solve_triangular(a, a[:, :2], lower=True),
    "upper": lambda a: jax.scipy.linalg.solve_triangular(a, a[:, :2], trans=1),
    "unit": lambda a: jax.lax.linalg.triangular_solve(a, a[:2], unit_diagonal=True),
    "lu": lambda a: jax.lax.linalg.lu(a),
    "solve": lambda a: jax.numpy.linalg.solve(a, a[0]),
    "det": lambda a: jax.numpy.linalg.det(a),
    "of a singular matrix": lambda a: jax.numpy.linalg.det(a * 0),
    "singular values": lambda a: jax.numpy.linalg.svd(a, compute_uv=False),
    "svd": lambda a: abs(jax.numpy.linalg.svd(a)[0]),
    "eigenvalues": lambda a: jax.numpy.linalg.eigvalsh(a),
    "eigenvectors": lambda a: abs(jax.numpy.linalg.eigh(a)[1]),
    "general": lambda a: jax.numpy.sort(abs(jax.numpy.linalg.eigvals(a))),
    "inverses": lambda a: jax.numpy.linalg.inv(jax.numpy.stack([a, 2 * a])),
    "by the QR algorithm": lambda a: jax.lax.linalg.svd(
        a, compute_uv=False, algorithm=jax.lax.linalg.SvdAlgorithm.QR
    ),
    "schur": lambda a: rebuild(*jax.lax.linalg.schur(a - 7)),
    "complex schur": lambda a: rebuild(*jax.lax.linalg.schur(a - 7j * a[0])),
    "triangular": lambda a: jax.numpy.sort(
        jax.numpy.diag(jax.lax.linalg.schur(a, compute_schur_vectors=False)[0])
    ),
}


@pytest.mark.parametrize("case", DECOMPOSED)
def test_custom_calls_of_lapack_become_decompositions(case: str) -> None:
    mine, theirs = run_both(DECOMPOSED[case], POSITIVE)
    for one, other in zip(mine, theirs, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("letter", ["s", "c"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_gees_returns_the_eigenvalues(letter: str, size: int) -> None:
    dtype = np.float32 if letter == "s" else np.complex64
    x = np.random.default_rng(size).normal(size=(2, size, size, 2)).astype("f")
    matrices = (x[..., 0] + (1j * x[..., 1] if letter == "c" else 0)).astype(dtype)
    matrix, vector = (
        f"tensor<2x{shape}x{'f32' if letter == 's' else 'complex<f32>'}>"
        for shape in (f"{size}x{size}", size)
    )
    values = ", ".join([vector] * (2 if letter == "s" else 1))
    results = f"{matrix}, {matrix}, {values}, tensor<2xi32>, tensor<2xi32>"
    text = f"""\
func.func @main(%x: {matrix}) -> ({results}) {{
  %0:{6 if letter == "s" else 5} = stablehlo.custom_call @lapack_{letter}gees_ffi(%x) {{
    mhlo.backend_config = {{mode = 86 : ui8, sort = 78 : ui8}}}} : ({matrix}) -> ({results})
  return {", ".join(f"%0#{i}" for i in range(6 if letter == "s" else 5))} : {results}
}}
"""
    form, vectors, *found, selected, info = ours(text, [matrices])
    rebuilt = vectors @ form @ vectors.conj().swapaxes(-1, -2)
    np.testing.assert_allclose(rebuilt, matrices, rtol=1e-4, atol=1e-4)
    eigenvalues = found[0] + 1j * found[1] if letter == "s" else found[0]
    np.testing.assert_allclose(
        np.sort_complex(np.round(eigenvalues, 3)),
        np.sort_complex(np.round(np.linalg.eigvals(matrices), 3)),
        atol=2e-3,
    )
    assert not selected.any()
    assert not info.any()


@pytest.mark.parametrize("size", [1, 2, 5, 6])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_tridiagonal_systems_are_solved_with_pivoting(size: int, dtype: Any) -> None:
    random = np.random.default_rng(size)
    low, middle, high = random.normal(size=(3, 2, size)).astype(dtype)
    right = random.normal(size=(2, size, 3)).astype(dtype)
    if size % 2 == 0:
        middle[0] = 0  # Elimination without exchanges divides by zero.
    low[:, 0] = 0
    high[:, -1] = 0
    mine, theirs = run_both(jax.lax.linalg.tridiagonal_solve, low, middle, high, right)
    np.testing.assert_allclose(mine[0], theirs[0], rtol=2e-3, atol=2e-3)
    singular, expected = run_both(
        jax.lax.linalg.tridiagonal_solve, low * 0, middle * 0, high * 0, right
    )
    assert np.isnan(expected[0]).all()
    assert np.isnan(singular[0]).all()


def test_map_applies_its_computation_to_each_element() -> None:
    text = """\
func.func @main(%x: tensor<3x4xf32>, %k: tensor<f32>) -> tensor<3x4xf32> {
  %0 = "stablehlo.map"(%x, %x) <{dimensions = array<i64: 0, 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.sine %a : tensor<f32>
      %c = stablehlo.constant dense<2.0> : tensor<f32>
      %m = stablehlo.multiply %s, %c : tensor<f32>
      %n = stablehlo.multiply %m, %k : tensor<f32>
      %t = stablehlo.add %n, %b : tensor<f32>
      stablehlo.return %t : tensor<f32>
  }) : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}
"""
    (found,) = ours(text, [MATRIX, np.float32(3)])
    np.testing.assert_allclose(found, 6 * np.sin(MATRIX) + MATRIX, rtol=1e-6)
