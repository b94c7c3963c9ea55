"""Transposition of linear functions, and conversion of closures to functions with arguments."""

from collections.abc import Sequence

from shardir.errors import DifferentiateError
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.dispatch.inspection import eval_shape
from shardir.frontend.dispatch.temporary_programs import run_temporary
from shardir.frontend.dispatch.traced_calls import result_tracer
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree.tree_structure import format_structure
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.function_tracing import trace_block, trace_function
from shardir.frontend.tracing.operands import as_tracer, convert, splat
from shardir.frontend.tracing.parameters import function_name, leaf_labels
from shardir.frontend.tracing.trace import (
    append_block,
    append_ops,
    current_trace,
    require_trace,
    wrap_value,
)
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.varying_axes import check_cotangents, make_varying_explicit
from shardir.frontend.transforms.linearization_point import check_directions, run_derivative_pass
from shardir.ir.builder import Builder, inline
from shardir.ir.module import Function, Value
from shardir.ir.operation import NOT_VARYING, Varying
from shardir.ir.types import INEXACT
from shardir.passes.autodiff.varying import dependent_values
from shardir.passes.autodiff.vjp import linearize


@traceback_boundary
def linear_transpose(fun: UserFunction, *primals: PyTree) -> UserFunction:
    """Return the transpose of `fun`, a linear function of floating-point arrays.

    `primals` are arrays or `ShapeDtypeStruct`s; only their shapes and element types are used. The
    transpose takes a cotangent of the type of the result of `fun`, and returns a tuple of
    cotangents of the types of `primals`. Raises `DifferentiateError` if `fun` is not linear.
    """
    name = function_name(fun)
    leaves, structure = tree.flatten(tuple(primals))
    abstracts = [abstract_of(leaf) for leaf in leaves]
    for abstract in abstracts:
        if abstract.type.dtype not in INEXACT:
            raise DifferentiateError(
                with_location(
                    f"linear_transpose of {name} needs floating-point or complex arguments, got "
                    f"{abstract.type}; bind the other arguments with functools.partial"
                )
            )
    outs, results = tree.flatten(eval_shape(fun, *primals))
    origins: list[Tracer | Varying] = [
        leaf if isinstance(leaf, Tracer) else NOT_VARYING for leaf in leaves
    ]

    def flat(*tracers: Tracer) -> list[Tracer]:
        leaves = tree.leaves(fun(*tree.unflatten(structure, tracers)))
        return [result_tracer(x, i, results, name) for i, x in enumerate(leaves)]

    def apply_transpose(*cotangents: Tracer) -> list[Tracer]:
        function, _ = trace_function(flat, abstracts, name, (), origins)
        values = _apply_transpose(function, origins, name, cotangents)
        pairs = zip(values, abstracts, strict=True)
        return [wrap_value(value, abstract.weak) for value, abstract in pairs]

    @traceback_boundary
    def transpose(cotangent: PyTree) -> PyTree:
        given = check_directions(
            "cotangent", f"the transpose of {name}", "result", outs, results, cotangent
        )
        if current_trace() is not None:
            result = apply_transpose(*map(as_tracer, given))
        else:
            labels = leaf_labels("cotangent", cotangent)
            result = run_temporary(apply_transpose, name, given, labels)
        return tree.unflatten(structure, result)

    return transpose


def _apply_transpose(
    function: Function, origins: Sequence[Tracer | Varying], name: str, cotangents: Sequence[Tracer]
) -> Sequence[Value]:
    """Append the transpose of a traced function, and return the cotangents of its parameters."""
    explicit = make_varying_explicit(function, origins)
    inexact = (v.type.dtype in INEXACT for v in function.body.returns)
    vma = [each for each, is_inexact in zip(explicit.results, inexact, strict=True) if is_inexact]
    check_cotangents(f"the transpose of {name}", cotangents, vma)
    function = explicit.function
    both = run_derivative_pass(lambda: linearize(function, range(len(function.body.params))))
    body, count = both.forward.body, len(function.body.returns)
    moving = dependent_values(body, body.params)
    if any(value in moving for value in body.returns[count:]):
        raise DifferentiateError(
            with_location(
                f"linear_transpose of {name}, which is not linear; use vjp, which linearizes a "
                "function at a point"
            )
        )
    # The residuals of the pullback do not depend on the arguments, so zeros suffice.
    zeros = [splat(0, value.type) for value in function.body.params]
    saved = append_block(body, zeros, function.body)[count:]
    back = both.pullback.body
    return append_block(back, [*map(wrap_value, saved), *cotangents], body)


def _operand_like(x: object, param: Value, what: str) -> Tracer:
    """Return an argument of a converted function as a tracer of the type of a parameter."""
    abstract = abstract_of(x, what)
    same = abstract.type.dtype == param.type.dtype or abstract.weak
    if abstract.type.shape != param.type.shape or not same:
        raise ArgumentError(
            with_location(
                f"{what}, which closure_convert converted for {param.type}, is {abstract.type}"
            )
        )
    return convert(as_tracer(x), param.type.dtype)


@traceback_boundary
def closure_convert(fun: UserFunction, *example_args: object) -> tuple[PyTree, list[PyTree]]:
    """Return `fun` with its captured values as additional arguments, and the list of these values.

    Traced floating-point values that `fun`, called with `example_args`, captures become arguments;
    `converted(*args, *closed)` then computes `fun(*args)`. Outside of a trace there are none.
    """
    check_function("closure_convert", fun)
    name = function_name(fun)
    if current_trace() is None:
        return (lambda *args: fun(*args)), []
    leaves, structure = tree.flatten(example_args)
    found: list[tree.PyTreeDef] = []

    def flat(*tracers: Tracer) -> list[Tracer]:
        out, kind = tree.flatten(call_user_function(fun, name, tree.unflatten(structure, tracers)))
        found.append(kind)
        return [result_tracer(x, i, kind, name) for i, x in enumerate(out)]

    abstracts = [abstract_of(leaf) for leaf in leaves]
    block, results = trace_block(flat, abstracts, name)
    closed = [value for value in block.captures() if value.type.dtype in INEXACT]
    params = (*block.params, *closed)

    @traceback_boundary
    def call_converted(*args: PyTree) -> PyTree:
        trace = require_trace(name)
        count = len(args) - len(closed)
        if count < 0:
            raise ArgumentError(
                with_location(f"{name} takes {len(closed)} closed-over values at its end")
            )
        given, kind = tree.flatten(args[:count])
        if kind != structure:
            raise ArgumentError(
                with_location(
                    f"{name} was converted for {format_structure(structure)}, called with "
                    f"{format_structure(kind)}"
                )
            )
        tracers = [
            _operand_like(x, param, f"argument {i} of {name}")
            for i, (x, param) in enumerate(zip((*given, *args[count:]), params, strict=True))
        ]
        b = Builder(trace.program.names)
        whole = type(block)(params, block.ops, block.returns)
        values = inline(b, whole, [x.value for x in tracers])
        append_ops(trace, b.ops)
        result = [wrap_value(v, a.weak) for v, a in zip(values, results, strict=True)]
        return tree.unflatten(found[-1], result)

    return call_converted, [wrap_value(value) for value in closed]
