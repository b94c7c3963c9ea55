"""Attention: means of values, weighted by how well keys meet queries."""

from math import sqrt
from typing import Any

import numpy as np

from shardir.frontend import numpy as snp
from shardir.frontend.eager import public
from shardir.frontend.errors import ShapeError
from shardir.frontend.locations import point
from shardir.frontend.nn.softmax import softmax
from shardir.frontend.numpy.pointwise import inexact
from shardir.frontend.operands import as_tracer, convert, promote_to


@public(static=("scale", "is_causal"))
def dot_product_attention(
    query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None, *,
    scale: float | None = None, is_causal: bool = False,
) -> Any:  # fmt: skip
    """Attention of queries [batch, t, heads, size] to keys and values [batch, s, heads, size].

    `bias` is added to the scores [batch, heads, t, s] and `mask` says which of them count; both
    broadcast. `scale` is 1 / sqrt(size) unless told; `is_causal` lets no query see a later key.
    There may be fewer heads of keys, each of which then serves as many heads of queries. Scores
    are computed in float32 at least. Without a batch the first axis is missing everywhere.
    """
    q, k, v = promote_to(inexact(query, key, value), query, key, value)
    if not q.ndim == k.ndim == v.ndim or q.ndim not in (3, 4) or k.shape != v.shape:
        told = f"{q.shape}, {k.shape} and {v.shape}"
        raise ShapeError(point(f"attention takes [batch, length, heads, size], got shapes {told}"))
    heads, groups = q.shape[-2], k.shape[-2]
    if heads % groups:
        raise ShapeError(point(f"attention of {heads} heads of queries to {groups} heads of keys"))
    batch = "b" if q.ndim == 4 else ""
    q = snp.reshape(q, (*q.shape[:-2], groups, heads // groups, q.shape[-1]))
    wide = {"f16": "float32", "bf16": "float32"}.get(q.value.type.dtype)
    scores = snp.einsum(f"{batch}tkgh,{batch}skh->{batch}kgts", q, k, preferred_element_type=wide)
    scores = scores * (1 / sqrt(q.shape[-1]) if scale is None else scale)
    lengths = scores.shape[-2:]
    scores = snp.reshape(scores, (*scores.shape[:-4], heads, *lengths))
    if bias is not None:
        scores = scores + bias
    if is_causal:
        seen = snp.tri(lengths[0], lengths[1], dtype=bool)
        mask = seen if mask is None else snp.logical_and(mask, seen)
    if mask is not None:
        lowest = float(np.finfo(scores.value.type.numpy).min) * 0.7
        scores = snp.where(mask, scores, lowest)
    chances = convert(as_tracer(softmax(scores)), v.value.type.dtype)
    chances = snp.reshape(chances, (*chances.shape[:-3], groups, heads // groups, *lengths))
    found = snp.einsum(f"{batch}kgts,{batch}skh->{batch}tkgh", chances, v)
    return snp.reshape(found, (*found.shape[:-3], heads, found.shape[-1]))
