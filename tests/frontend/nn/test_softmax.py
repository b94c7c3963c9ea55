"""Softmax functions and attention against their definitions."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardir as sd
from shardir.frontend.errors import ArgumentError, AxisError, ShapeError
from shardir.frontend.nn import api as nn
from tests.namespace import close, ops, run, words

GENERATOR = np.random.default_rng(17)
X = (GENERATOR.normal(size=(2, 3, 4)) * 3).astype("f")
HUGE = np.array([[1000.0, 1001.0, -1000.0], [-1e30, 0.0, 1e30]], "f")
MASK = X > -2


def softmax(x: Any, axis: Any = -1, where: Any = True) -> Any:
    parts = np.where(where, np.exp(x.astype("f8") - x.max(axis, keepdims=True)), 0)
    with np.errstate(invalid="ignore"):
        return np.where(where, parts / parts.sum(axis, keepdims=True), 0)


@pytest.mark.parametrize("axis", [-1, 0, (0, 2), None])
def test_softmax(axis: Any) -> None:
    close(run(nn.softmax, X, axis), softmax(X, axis))
    close(run(nn.softmax, X, axis, where=MASK), softmax(X, axis, MASK))
    close(run(nn.log_softmax, X, axis), np.log(softmax(X, axis)))
    close(run(nn.softmax, HUGE), softmax(HUGE))


def test_log_softmax_with_where() -> None:
    with np.errstate(divide="ignore"):
        close(run(nn.log_softmax, X, where=MASK), np.log(softmax(X, -1, MASK)))


def test_softmax_of_fully_masked_rows() -> None:
    nothing = np.zeros(3, bool)
    close(run(nn.softmax, HUGE, where=nothing), np.zeros((2, 3)))
    close(run(nn.log_softmax, HUGE, where=nothing), np.full((2, 3), -np.inf))


def test_softmax_emits_five_operations() -> None:
    expected = words("max stop_gradient broadcast sub exp sum broadcast div")
    assert ops(nn.softmax, X) == expected
    with pytest.raises(AxisError, match="axis 3 is out of range for an array of rank 3"):
        run(nn.softmax, X, 3)


def test_the_derivative_of_log_softmax() -> None:
    slope = sd.grad(lambda x: nn.log_softmax(x)[1])(X[0, 0])
    close(np.asarray(slope), np.eye(4)[1] - softmax(X[0, 0]))
    summed = sd.grad(lambda x: nn.logsumexp(x))(X[0])
    close(np.asarray(summed), softmax(X[0], None))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 1, (0, 2)])
def test_logsumexp(axis: Any, keepdims: bool) -> None:
    wide = X.astype("f8")
    expected = np.log(np.exp(wide).sum(axis, keepdims=keepdims))
    close(run(nn.logsumexp, X, axis, keepdims=keepdims), expected)
    masked = np.log(np.exp(wide).sum(axis, keepdims=keepdims, where=MASK))
    close(run(nn.logsumexp, X, axis, keepdims=keepdims, where=MASK), masked)
    means = np.log(np.exp(wide).mean(axis, keepdims=keepdims))
    close(run(nn.logmeanexp, X, axis, keepdims=keepdims), means)
    means = np.log(np.exp(wide).mean(axis, keepdims=keepdims, where=MASK))
    close(run(nn.logmeanexp, X, axis, keepdims=keepdims, where=MASK), means)
    close(np.asarray(nn.logmeanexp(X, axis, MASK, keepdims)), means)


def test_logsumexp_with_weights_and_signs() -> None:
    weights = GENERATOR.normal(size=(2, 3, 4)).astype("f")
    total = (weights * np.exp(X.astype("f8"))).sum(-1)
    size, sign = run(nn.logsumexp, X, -1, weights, return_sign=True)
    close(size, np.log(np.abs(total)), 1e-4)
    close(sign, np.sign(total))
    close(run(nn.logsumexp, X, -1, np.abs(weights)),
          np.log((np.abs(weights) * np.exp(X)).sum(-1)))  # fmt: skip


def test_logsumexp_of_complex_numbers_returns_their_sign() -> None:
    z = (X[0, 0] + 1j * X[1, 1]).astype("c8")
    weights = GENERATOR.normal(size=z.shape).astype("f")
    for a, b in ((z, weights), (z, z), (X[0, 0], z)):
        total = (b * np.exp(a.astype("c16"))).sum()
        size, sign = run(nn.logsumexp, a, None, b, return_sign=True)
        assert (size.dtype, sign.dtype) == (np.float32, np.complex64)
        close(size, np.log(np.abs(total)), 1e-4)
        close(sign, total / np.abs(total), 1e-4)
        close(np.exp(run(nn.logsumexp, a, None, b)), total, 1e-4)


def test_logsumexp_of_infinities() -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, 0], [np.nan, 0], [-np.inf, 1]], "f")
    assert run(nn.logsumexp, x, 1).tolist()[:2] == [-np.inf, np.inf]
    assert np.isnan(run(nn.logsumexp, x, 1)[2])
    assert run(nn.logsumexp, x, 1)[3] == 1
    close(run(nn.logsumexp, HUGE, 1), np.array([1001.3132616875182, 1e30]))


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis: int) -> None:
    x = np.array([[0, 2, 1], [3, -1, 7]], "i4")
    expected = np.moveaxis((x[..., None] == np.arange(4)).astype("f"), -1, axis)
    close(run(nn.one_hot, x, 4, axis=axis), expected)
    assert run(nn.one_hot, x, 4, dtype=bool).dtype == bool
    assert ops(nn.one_hot, x, 4) == ["iota", "broadcast", "eq", "convert"]


def test_standardize() -> None:
    mean, variance = X.mean(-1, keepdims=True), X.var(-1, keepdims=True)
    close(run(nn.standardize, X), (X - mean) / np.sqrt(variance + 1e-5))
    close(run(nn.standardize, X, mean=0.5, variance=4.0, epsilon=0.0), (X - 0.5) / 2)
    mean = X.mean((0, 1), keepdims=True, where=MASK)
    variance = ((X - mean) ** 2).mean((0, 1), keepdims=True, where=MASK)
    close(run(nn.standardize, X, (0, 1), where=MASK), (X - mean) / np.sqrt(variance + 1e-5))


def attention(q: Any, k: Any, v: Any, seen: Any = True, bias: Any = 0.0, scale: Any = None) -> Any:
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    repeats = q.shape[-2] // k.shape[-2]
    k, v = np.repeat(k, repeats, -2), np.repeat(v, repeats, -2)
    scores = np.einsum("...tnh,...snh->...nts", q.astype("f8"), k) * scale + bias
    chances = softmax(np.where(seen, scores, -1e30))
    return np.einsum("...nts,...snh->...tnh", chances, v)


def inputs(*heads: int) -> list[Any]:
    sizes = ((5, heads[0]), (6, heads[1]), (6, heads[1]))
    return [GENERATOR.normal(size=(2, *s, 4)).astype("f") for s in sizes]


def test_attention() -> None:
    q, k, v = inputs(4, 4)
    close(run(nn.dot_product_attention, q, k, v), attention(q, k, v), 1e-4)
    close(run(nn.dot_product_attention, q[0], k[0], v[0]), attention(q[0], k[0], v[0]), 1e-4)
    causal = np.tri(5, 6, dtype=bool)
    got = run(nn.dot_product_attention, q, k, v, is_causal=True)
    close(got, attention(q, k, v, causal), 1e-4)
    mask, bias = GENERATOR.random((2, 1, 5, 6)) < 0.7, GENERATOR.normal(size=(4, 5, 6)).astype("f")
    got = run(nn.dot_product_attention, q, k, v, bias, mask, scale=0.3, is_causal=True)
    close(got, attention(q, k, v, causal & mask, bias, 0.3), 1e-4)


def test_grouped_query_attention() -> None:
    q, k, v = inputs(6, 2)
    close(run(nn.dot_product_attention, q, k, v), attention(q, k, v), 1e-4)


def test_attention_of_16_bit_floats_has_f32_scores() -> None:
    q, k, v = (x.astype(ml_dtypes.bfloat16) for x in inputs(2, 2))
    got = run(nn.dot_product_attention, q, k, v)
    assert got.dtype == ml_dtypes.bfloat16
    close(got, attention(*(x.astype("f") for x in (q, k, v))), 3e-2)


def test_attention_with_local_windows_and_sequence_lengths() -> None:
    q, k, v = inputs(4, 4)
    rows, columns = np.ogrid[:5, :6]
    near = (columns >= rows - 2) & (columns <= rows + 1)
    got = run(nn.dot_product_attention, q, k, v, local_window_size=(2, 1))
    close(got, attention(q, k, v, near), 1e-4)
    queries, keys = np.array([3, 5]), np.array([6, 2])
    counted = (columns < keys[:, None, None])[:, None]
    got = run(nn.dot_product_attention, q, k, v, query_seq_lengths=queries,
              key_value_seq_lengths=keys)  # fmt: skip
    expected = attention(q, k, v, counted)
    expected[0, 3:] = 0
    close(got, expected, 1e-4)


def test_attention_with_its_residual() -> None:
    q, k, v = inputs(4, 4)
    got, residual = run(nn.dot_product_attention, q, k, v, return_residual=True)
    close(got, attention(q, k, v), 1e-4)
    scores = np.einsum("bthd,bshd->bths", q, k) / np.sqrt(q.shape[-1])
    close(residual, np.log(np.exp(scores).sum(-1)), 1e-4)
    with pytest.raises(
        ArgumentError, match="implementation of attention is 'cudnn'; use None or 'xla'"
    ):
        run(nn.dot_product_attention, q, k, v, implementation="cudnn")


def test_attention_of_mismatched_shapes_is_an_error() -> None:
    q, k, v = inputs(4, 3)
    with pytest.raises(ShapeError, match="multiple of the number of key heads, got 4 and 3"):
        run(nn.dot_product_attention, q, k, v)
    with pytest.raises(
        ShapeError, match=r"attention takes arrays \[batch, length, heads, size\], got"
    ):
        run(nn.dot_product_attention, q[0, 0], k, v)


def test_one_hot_of_floats_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match=r"one_hot takes integers, got f32\[1\]; convert"):
        np.testing.assert_array_equal(nn.one_hot(np.ones(1, np.float32), 2), [[0, 1]])
