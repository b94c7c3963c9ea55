"""Functions of `jax.lax` on single elements: `scatter_sub`, `scatter_apply`, `index_take`."""

from collections.abc import Callable, Sequence

from shardir.errors import OperationTypeError
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.lax import elementwise
from shardir.frontend.lax.control_flow import loops
from shardir.frontend.lax.gather_scatter import ScatterDimensionNumbers, scatter_add
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.elementwise import arithmetic, selection
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.shaping import reshaping
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, reshape
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.vmap import vmap


@with_argument_errors
def scatter_sub(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | None = None,
) -> Tracer:
    """Return a copy of `operand` with windows of updates subtracted at index vectors.

    See `scatter_add`.
    """

    negated = arithmetic.negative(updates)
    result: Tracer = scatter_add(operand, scatter_indices, negated, dimension_numbers, mode=mode)
    return result


@public(
    static=(
        "func",
        "dimension_numbers",
        "update_shape",
        "indices_are_sorted",
        "unique_indices",
        "mode",
    ),
    cached=False,
)
def scatter_apply(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    func: Callable[[PyTree], PyTree],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | None = None,
) -> PyTree:
    """Return a copy of `operand` with `func` applied to the windows at index vectors.

    `update_shape` is the shape of the updates that `scatter` would take. An element in several
    windows is mapped several times, unless `unique_indices` promises that there is none. `func`
    maps a scalar to a scalar.
    """
    x = as_tracer(operand)

    def apply_to_elements(values: Tracer) -> Tracer:
        flat = vmap(func)(reshape(values, (values.size,)))
        return elementwise.convert_element_type(reshaping.reshape(flat, x.shape), x.dtype)

    times = scatter_add(
        filling.zeros(x.shape, "int32"),
        scatter_indices,
        filling.ones(tuple(update_shape), "int32"),
        dimension_numbers,
        mode=mode,
    )
    if unique_indices or not x.size:
        return selection.where(times > 0, apply_to_elements(x), x) if x.size else x

    def step(state: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        done, values = state
        return done + 1, selection.where(times > done, apply_to_elements(values), values)

    max_count = basic_reductions.max(times)
    return loops.while_loop(lambda state: state[0] < max_count, step, (as_tracer(0), x))[1]


@public(static=("axes",))
def index_take(src: ArrayLike, idxs: Sequence[object], axes: Sequence[int]) -> Tracer:
    """Return the elements of `src` at indices along `axes`, given as vectors of one length.

    The result has the length of these vectors as leading dimension, followed by the other
    dimensions of `src`. Indices are taken modulo the size.
    """
    x, indices = as_tracer(src), [as_tracer(vector) for vector in idxs]
    dims = [axis + x.ndim if axis < 0 else axis for axis in axes]
    if len(indices) != len(dims) or any(vector.ndim != 1 for vector in indices):
        shapes = ", ".join(str(vector.shape) for vector in indices)
        raise OperationTypeError(
            with_location(
                f"index_take takes a vector of indices for each of axes {dims}, got {shapes}"
            )
        )

    front: Tracer = reshaping.moveaxis(x, dims, range(len(dims)))
    wrapped = [vector % size for vector, size in zip(indices, front.shape, strict=False)]
    return front[tuple(wrapped)]
