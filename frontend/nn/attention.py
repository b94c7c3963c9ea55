"""Dot-product attention."""

from functools import reduce
from math import sqrt

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.nn.softmax import logsumexp, softmax
from shardir.frontend.numpy.creation import diagonal_matrices, ranges
from shardir.frontend.numpy.elementwise import comparison, selection
from shardir.frontend.numpy.linear_algebra import einsum
from shardir.frontend.numpy.shaping import reshaping
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import inexact_kind
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert, promote_to
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import NARROW_FLOATS


@public(static=("scale", "is_causal", "local_window_size", "implementation", "return_residual"))
def dot_product_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, bias: ArrayLike | None = None,
    mask: ArrayLike | None = None, *,
    scale: float | None = None, is_causal: bool = False, query_seq_lengths: object = None,
    key_value_seq_lengths: object = None, local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None, return_residual: bool = False,
) -> PyTree:  # fmt: skip
    """Return the attention of queries [batch, t, heads, size] to keys and values [batch, s, heads,
    size].

    `bias` is added to the scores [batch, heads, t, s], and `mask` states which scores are included;
    both broadcast. `scale` is 1 / sqrt(size) by default; `is_causal` excludes later keys, and
    `local_window_size` (left, right) excludes keys outside of the window. In each batch only the
    first `query_seq_lengths` queries and `key_value_seq_lengths` keys are used; results of other
    queries are 0. There may be fewer heads of keys, each of which then serves several heads of
    queries. Scores are computed in float32 or wider. Without a batch, the first axis is missing in
    all arrays. With `return_residual` the result is (attention, logsumexp of the scores [batch, t,
    heads]).
    """
    if implementation not in (None, "xla"):
        raise ArgumentError(
            with_location(f"implementation of attention is {implementation!r}; use None or 'xla'")
        )
    q, k, v = promote_to(inexact_kind(query, key, value), query, key, value)
    if not q.ndim == k.ndim == v.ndim or q.ndim not in (3, 4) or k.shape != v.shape:
        shapes = f"{q.shape}, {k.shape} and {v.shape}"
        raise ShapeError(
            with_location(
                f"attention takes arrays [batch, length, heads, size], got shapes {shapes}"
            )
        )
    heads, groups = q.shape[-2], k.shape[-2]
    if heads % groups:
        raise ShapeError(
            with_location(
                f"attention takes a number of query heads that is a multiple of the number of key "
                f"heads, got {heads} and {groups}"
            )
        )
    batch = "b" if q.ndim == 4 else ""
    q = reshaping.reshape(q, (*q.shape[:-2], groups, heads // groups, q.shape[-1]))
    score_dtype = "float32" if q.value.type.dtype in NARROW_FLOATS else None
    scores = einsum.einsum(
        f"{batch}tkgh,{batch}skh->{batch}kgts", q, k, preferred_element_type=score_dtype
    )
    scores = scores * (1 / sqrt(q.shape[-1]) if scale is None else scale)
    lengths = scores.shape[-2], scores.shape[-1]
    scores = reshaping.reshape(scores, (*scores.shape[:-4], heads, *lengths))
    if bias is not None:
        scores = convert(scores + bias, scores.value.type.dtype)
    masks: list[ArrayLike | None] = [mask, *_window_masks(lengths, is_causal, local_window_size)]
    counts = None if query_seq_lengths is None else _length_mask(lengths[0], query_seq_lengths)
    if counts is not None:
        masks.append(counts[..., None, :, None])
    if key_value_seq_lengths is not None:
        masks.append(_length_mask(lengths[1], key_value_seq_lengths)[..., None, None, :])
    given = [as_tracer(each) for each in masks if each is not None]
    if given:
        lowest = float(np.finfo(scores.value.type.numpy).min) * 0.7
        scores = selection.where(reduce(comparison.logical_and, given), scores, lowest)
    probabilities = convert(as_tracer(softmax(scores)), v.value.type.dtype)
    probabilities = reshaping.reshape(
        probabilities, (*probabilities.shape[:-3], groups, heads // groups, *lengths)
    )
    result = einsum.einsum(f"{batch}kgts,{batch}skh->{batch}tkgh", probabilities, v)
    result = reshaping.reshape(result, (*result.shape[:-3], heads, result.shape[-1]))
    if counts is not None:
        result = result * convert(counts[..., None, None], result.value.type.dtype)
    if return_residual:
        residual = as_tracer(reshaping.moveaxis(logsumexp(scores, -1), -2, -1))
        return result, convert(residual, v.value.type.dtype)
    return result


def _window_masks(
    lengths: tuple[int, int], causal: bool, window: int | tuple[int, int] | None
) -> list[Tracer]:
    """Return masks of the keys that each query may attend to by distance, [t, s]."""
    masks = [diagonal_matrices.tri(*lengths, dtype=bool)] if causal else []
    if window is not None:
        left, right = (window, window) if isinstance(window, int) else window
        masks.append(diagonal_matrices.tri(*lengths, right, dtype=bool))
        masks.append(comparison.logical_not(diagonal_matrices.tri(*lengths, -left - 1, dtype=bool)))
    return masks


def _length_mask(length: int, counts: object) -> Tracer:
    """Return whether each position is among the first `counts` of its batch, [batch, length]."""
    return ranges.arange(length) < as_tracer(counts)[..., None]
