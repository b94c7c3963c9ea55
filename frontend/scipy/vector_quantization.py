"""Vector quantization: the nearest code of each observation."""

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ShapeError
from shardir.frontend.numpy.linear_algebra import norms
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import inexact_kind
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert, reshape
from shardir.frontend.tracing.tracer import Tracer

__all__ = ["vq"]


@public(static=("check_finite",))
def vq(obs: ArrayLike, code_book: ArrayLike, check_finite: bool = True) -> tuple[Tracer, Tracer]:
    """Return the index of the nearest row of `code_book` for each row of `obs`, and its distance.

    Vectors are observations of one feature. `check_finite` is accepted for compatibility.
    """
    kind = inexact_kind(obs, code_book)
    observations, codes = (convert(as_tracer(each), *kind) for each in (obs, code_book))
    if observations.ndim == codes.ndim == 1:
        observations, codes = (reshape(each, (each.size, 1)) for each in (observations, codes))
    if (observations.ndim, codes.ndim) != (2, 2) or observations.shape[1] != codes.shape[1]:
        raise ShapeError(
            with_location(
                f"vq got obs of shape {observations.shape} and code_book of shape {codes.shape}; "
                f"both are vectors, or matrices with the same number of columns"
            )
        )
    distances = norms.norm(observations[:, None] - codes[None], axis=-1)
    nearest = basic_reductions.argmin(distances, axis=-1)
    return nearest, basic_reductions.min(distances, axis=-1)
