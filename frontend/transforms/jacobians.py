"""Jacobians and Hessians of functions of arrays: `jacfwd`, `jacrev` and `hessian`.

A Jacobian is a derivative mapped over all unit vectors: those of the arguments in forward mode,
those of the results in reverse mode.
"""

from collections.abc import Callable, Sequence
from math import prod

from shardir.errors import DifferentiateError
from shardir.frontend.argument_checks import check_flag
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.dispatch.temporary_programs import run_temporary
from shardir.frontend.numpy.creation import diagonal_matrices, filling, ranges
from shardir.frontend.numpy.elementwise import selection
from shardir.frontend.numpy.indexing import take
from shardir.frontend.numpy.shaping import reshaping
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.named_axes import checked_axes
from shardir.frontend.tracing.operands import as_tracer, operand_dtype
from shardir.frontend.tracing.parameters import ArgNums, Parameters, leaf_labels
from shardir.frontend.tracing.trace import current_trace, require_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.varying_axes import axis_position, communicates_along, varying_axes_of
from shardir.frontend.transforms.differentiated_arguments import active_leaves, resolve_argnums
from shardir.frontend.transforms.jvp_vjp import jvp, vjp, vjp_per_device
from shardir.frontend.transforms.vmap import vmap
from shardir.frontend.wrappers import wraps
from shardir.ir.operation import Varying
from shardir.ir.types import COMPLEX, INEXACT

InnerFunction = Callable[..., tuple[PyTree, PyTree]]
"""A function from the differentiable leaves to results and auxiliary data."""


@with_argument_errors
def jacfwd(
    fun: UserFunction,
    argnums: ArgNums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> UserFunction:
    """Return a function that computes the Jacobian of `fun`, column by column in forward mode.

    For each array of the result it has, in the pytree structure of the result, one array for each
    array of the argument, in the structure of the argument; its shape is that of the result
    followed by that of the argument. It is cheaper than `jacrev` if the argument is smaller than
    the result. With `has_aux`, `fun` returns `(result, aux)`, and the result is `(jacobian, aux)`.
    `holomorphic` is for complex functions of complex arguments.

    Raises `DifferentiateError` for arguments and results without a derivative.
    """

    def columns(name: str, inner: InnerFunction, leaves: Sequence[Tracer]) -> tuple[PyTree, PyTree]:
        _check_real("jacfwd", name, "argument", leaves, holomorphic)

        def push_forward(*tangents: Tracer) -> PyTree:
            results, out_tangents, aux = jvp(inner, tuple(leaves), tangents, has_aux=True)
            _check_differentiable("jacfwd", name, results, holomorphic)
            return out_tangents, aux

        size = sum(prod(leaf.shape) for leaf in leaves)
        basis = _unit_vectors(leaves)
        derivatives, aux = vmap(push_forward, out_axes=(-1, None), axis_size=size)(*basis)
        return tree.map(
            lambda y: _JacobianRow(_split_by_leaf(y, leaves, y.ndim - 1)), derivatives
        ), aux

    return _jacobian("jacfwd", fun, argnums, has_aux, holomorphic, columns)


@with_argument_errors
def jacrev(
    fun: UserFunction,
    argnums: ArgNums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> UserFunction:
    """Return a function that computes the Jacobian of `fun`, row by row in reverse mode.

    The result is that of `jacfwd`; it is cheaper if the result is smaller than the argument.
    """

    def rows(name: str, inner: InnerFunction, leaves: Sequence[Tracer]) -> tuple[PyTree, PyTree]:
        results, pullback, aux = vjp(inner, *leaves, has_aux=True)
        _check_differentiable("jacrev", name, results, holomorphic)
        outs, structure = tree.flatten(results)
        _check_real("jacrev", name, "result", outs, holomorphic)
        varies, given = varying_axes_of(outs), varying_axes_of(leaves)
        each: list[list[PyTree]] = [[]] * len(outs)
        for own in dict.fromkeys(varies):
            chosen = [i for i, along in enumerate(varies) if along == own]
            if all(own <= along for along in given):
                made = _jacobian_rows(pullback, structure, outs, chosen)
            else:
                made = _per_device_rows(inner, leaves, given, own, chosen)
            for i, row in zip(chosen, made, strict=True):
                each[i] = row
        return tree.unflatten(structure, [_JacobianRow(row) for row in each]), aux

    return _jacobian("jacrev", fun, argnums, has_aux, holomorphic, rows)


jacobian = jacrev
"""The same function as `jacrev`."""


def _jacobian_rows(
    pullback: UserFunction,
    structure: tree.PyTreeDef,
    outs: Sequence[Tracer],
    chosen: Sequence[int],
    basis: Sequence[PyTree] | None = None,
) -> list[list[PyTree]]:
    """Return the rows of the chosen results; `basis` are their unit vectors."""
    parts = [outs[i] for i in chosen]
    given = dict(zip(chosen, _unit_vectors(parts) if basis is None else basis, strict=True))

    def pull_back(*cotangents: Tracer) -> PyTree:
        moving = dict(zip(chosen, cotangents, strict=True))
        zeros = [filling.zeros(out.shape, out.dtype) for out in outs]
        return pullback(tree.unflatten(structure, [moving.get(i, z) for i, z in enumerate(zeros)]))

    size = next(iter(given.values())).shape[0]
    gradients = vmap(pull_back, axis_size=size)(*given.values())
    if basis is not None:
        return [list(gradients)]
    taken = [_split_by_leaf(gradient, parts, 0) for gradient in gradients]
    return [[part[i] for part in taken] for i in range(len(parts))]


def _per_device_rows(
    inner: InnerFunction,
    leaves: Sequence[Tracer],
    given: Sequence[Varying],
    own: Varying,
    chosen: Sequence[int],
) -> list[list[Tracer]]:
    """Return the rows of results that vary along `own`, where some arguments do not.

    Each device has rows of its own results, which must not be summed over the devices. If the
    devices do not communicate in between, the rows follow from arguments that count as separate on
    each device. Otherwise all devices compute the rows of all.
    """
    axes = tuple(a for a in checked_axes() if any(a in own - along for along in given))

    trace = require_trace("jacrev")
    results, pullback, _ = vjp_per_device(inner, tuple(leaves), True, frozenset(axes))
    outs, structure = tree.flatten(results)
    start = len(trace.ops)
    rows = _jacobian_rows(pullback, structure, outs, chosen)
    if not any(communicates_along(op, axes) for op in trace.ops[start:]):
        return rows
    results, pullback, _ = vjp(inner, *leaves, has_aux=True)
    outs, structure = tree.flatten(results)
    parts = [outs[i] for i in chosen]
    sizes = [axis.size for axis in axes]
    place = [axis_position(axis) for axis in axes]
    which: Tracer | int = 0
    for position, size in zip(place, sizes, strict=True):
        which = which * size + position
    is_mine = ranges.arange(prod(sizes)) == which
    basis = []
    for unit in _unit_vectors(parts):
        masked = selection.where(reshaping.reshape(is_mine, (-1, *(1,) * unit.ndim)), unit, 0)
        basis.append(reshaping.reshape(masked, (-1, *unit.shape[1:])))
    (gradients,) = _jacobian_rows(pullback, structure, outs, chosen, basis)
    picked = []
    for gradient, along in zip(gradients, given, strict=True):
        whole = reshaping.reshape(gradient, (*sizes, -1, *gradient.shape[1:]))
        for axis, index in zip(axes, place, strict=True):
            whole = whole.sum(0) if axis in along else take.take(whole, index, axis=0)
        picked.append(_split_by_leaf(whole, parts, 0))
    return [[part[i] for part in picked] for i in range(len(parts))]


@with_argument_errors
def hessian(
    fun: UserFunction,
    argnums: ArgNums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> UserFunction:
    """Return a function that computes the second derivatives of `fun`: `jacfwd` of `jacrev`."""
    gradient = jacrev(fun, argnums, has_aux, holomorphic)
    return jacfwd(gradient, argnums, has_aux, holomorphic)


class _JacobianRow:
    """The derivatives of one result: one array for each leaf of the argument."""

    def __init__(self, arrays: Sequence[Tracer]) -> None:
        self.arrays = arrays


def _jacobian(
    what: str,
    fun: UserFunction,
    argnums: ArgNums,
    has_aux: bool,
    holomorphic: bool,
    make: Callable[[str, InnerFunction, Sequence[Tracer]], tuple[PyTree, PyTree]],
) -> UserFunction:
    single = isinstance(argnums, int)
    has_aux = check_flag(f"has_aux of {what}", has_aux)
    holomorphic = check_flag(f"holomorphic of {what}", holomorphic)
    parameters = Parameters.of(fun)

    @traceback_boundary
    @wraps(fun)
    def jacobian(*args: PyTree, **options: PyTree) -> PyTree:
        numbers = resolve_argnums(what, argnums, args, parameters)
        chosen = args[numbers[0]] if single else tuple(args[i] for i in numbers)
        leaves, structure = tree.flatten(chosen)
        labels = [label for i in numbers for label in leaf_labels(parameters.label(i), args[i])]
        active_leaves(what, leaves, labels, parameters.name, holomorphic, False)

        def inner(*moving: Tracer) -> tuple[PyTree, PyTree]:
            whole = list(args)
            filled = tree.unflatten(structure, moving)
            for i, arg in zip(numbers, (filled,) if single else filled, strict=True):
                whole[i] = arg
            out = call_user_function(fun, parameters.name, whole, options)
            return out if has_aux else (out, None)

        inner.__name__ = parameters.name

        def compute(*tracers: Tracer) -> PyTree:
            rows, aux = make(parameters.name, inner, tracers)
            return tree.map(lambda row: tree.unflatten(structure, row.arrays), rows), aux

        if current_trace() is not None:
            result, aux = compute(*map(as_tracer, leaves))
        else:
            result, aux = run_temporary(compute, parameters.name, leaves, labels)
        return (result, aux) if has_aux else result

    return jacobian


def _unit_vectors(leaves: Sequence[Tracer]) -> list[Tracer]:
    """Return for each leaf the unit vectors of all leaves; those of other leaves are zeros."""
    sizes = [prod(leaf.shape) for leaf in leaves]
    made, start = [], 0
    for leaf, size in zip(leaves, sizes, strict=True):
        unit = diagonal_matrices.eye(sum(sizes), size, k=-start, dtype=leaf.dtype)
        made.append(reshaping.reshape(unit, (sum(sizes), *leaf.shape)))
        start += size
    return made


def _split_by_leaf(derivatives: Tracer, leaves: Sequence[Tracer], axis: int) -> list[Tracer]:
    """Return the axis of all unit vectors split into the axes of each leaf."""
    parts, start = [], 0
    before, after = derivatives.shape[:axis], derivatives.shape[axis + 1 :]
    for leaf in leaves:
        end = start + prod(leaf.shape)
        part = derivatives[(slice(None),) * axis + (slice(start, end),)]
        parts.append(reshaping.reshape(part, (*before, *leaf.shape, *after)))
        start = end
    return parts


def _check_real(
    what: str, name: str, word: str, leaves: Sequence[Tracer], holomorphic: bool
) -> None:
    """Raise an error for complex leaves unless `holomorphic`."""
    for leaf in leaves:
        if operand_dtype(leaf)[0] in COMPLEX and not holomorphic:
            raise DifferentiateError(
                with_location(
                    f"{what} of {name} needs real {word}s, and one is {abstract_of(leaf).type}; "
                    "set holomorphic=True for complex functions"
                )
            )


def _check_differentiable(what: str, name: str, results: object, holomorphic: bool) -> None:
    """Raise an error for results that have no derivative."""
    for result in tree.leaves(results):
        dtype = operand_dtype(result)[0]
        if dtype not in INEXACT or (holomorphic and dtype not in COMPLEX):
            kind = "complex" if holomorphic else "floating-point"
            raise DifferentiateError(
                with_location(
                    f"{what} of {name} needs {kind} results, and one is "
                    f"{abstract_of(result).type}; return others as aux with has_aux=True"
                )
            )
