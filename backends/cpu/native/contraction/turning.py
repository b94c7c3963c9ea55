"""Layout transform: computes convolutions with features first as if features were last.

In gradients of images neither rows nor K steps of the product are contiguous in the filter. If the
convolution had strides, positions of the result are not contiguous, and neither are those of the
image for long strides. Small images have lines shorter than tiles, so that the NCHW layout and
packing the filter are expensive. With features innermost all of these are contiguous runs.
Transposing the operands and the result takes less time than it saves.
"""

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from shardir.backends.cpu.native.contraction.narrow import rate
from shardir.backends.cpu.native.contraction.planes import PACES
from shardir.backends.cpu.native.data import Context, Phase, View, packed
from shardir.backends.cpu.native.moves.copying import copy_phases
from shardir.ops.convolution_loops import sides
from shardir.types import TensorType

TURN = 0.12
"""Nanoseconds per element that is transposed in squares."""
SHARE, APART = 0.07, 0.3
"""Maximum time of the transform relative to the product; the same if positions are not
contiguous."""
SMALL = 256
"""Output positions of a small image."""


class Turned(NamedTuple):
    """A convolution of copies, and the phases before and after it."""

    before: list[Phase]
    image: View
    filter: View
    out: View
    after: list[Phase]


def with_features_last(
    attrs: Mapping[str, Any], x: View, w: View, out: View, context: Context
) -> Turned | None:
    """Return the convolution of transposed copies, or None if the transform does not pay off."""
    of, by, to = sides(attrs["dims"])
    is_strided = max(attrs["lhs_dilation"], default=1) > 1
    is_strided = is_strided or max(attrs["strides"], default=1) > max(PACES)
    last = [(x, of.second), (w, by.second), (out, to.second)]
    if attrs.get("groups", 1) * attrs.get("batch_groups", 1) > 1 or any(
        view.strides[dim] == view.itemsize for view, dim in last
    ):
        return None
    window, places = (
        prod(view.shape[d] for d in side.spatial) for view, side in ((w, by), (out, to))
    )
    elements = x.size + out.size
    small = prod(x.shape[d] for d in of.spatial) <= SMALL and w.size <= 2 * elements
    is_filter_strided = is_strided or w.strides[by.second] < w.strides[by.first]
    # Larger windows are gradients of filters.
    if not 1 < window <= places or not (is_filter_strided or small):
        return None
    steps = out.size * w.shape[by.first] * window
    time = 2.0 * steps / prod(attrs["lhs_dilation"]) / rate(out.itemsize, context.machine)
    if TURN * elements >= (APART if is_strided else SHARE) * time:
        return None
    image = _copy_of(x, (of.first, *of.spatial, of.second), context)
    filter = _copy_of(w, (*by.spatial, by.first, by.second), context)
    result = _copy_of(out, (to.first, *to.spatial, to.second), context)
    before = [*copy_phases(x, image, context), *copy_phases(w, filter, context)]
    return Turned(before, image, filter, result, copy_phases(result, out, context))


def _copy_of(view: View, order: tuple[int, ...], context: Context) -> View:
    """Return a dense view in a temporary, with the dimensions in this order."""
    strides = packed(TensorType(view.shape, view.dtype), order)
    return View(context.temporary(view.nbytes), 0, view.shape, strides, view.dtype)
