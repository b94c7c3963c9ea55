"""Transposition of linear functions, and conversion of closures to functions with arguments."""

from collections.abc import Callable
from typing import Any

from shardir.build import Builder, inline
from shardir.errors import DifferentiateError
from shardir.frontend import tree
from shardir.frontend.calling import is_array_like, returned, run_fleeting
from shardir.frontend.errors import ArgumentError
from shardir.frontend.inspection import eval_shape
from shardir.frontend.locations import point
from shardir.frontend.operands import abstract_of, as_tracer, splat
from shardir.frontend.parameters import called, labels_of, name_of
from shardir.frontend.primals import derived, fitting
from shardir.frontend.trace import (
    append_block,
    current,
    require,
    trace_block,
    trace_function,
    wrap,
)
from shardir.frontend.tracer import Tracer
from shardir.frontend.tree_checks import check_function, shown
from shardir.frontend.varying import check_cotangents, explicit
from shardir.passes.differentiate import linearize
from shardir.passes.varying import depending
from shardir.types import INEXACT
from shardir.vma import NONE, Varying


def linear_transpose(fun: Callable[..., Any], *primals: Any) -> Callable[..., Any]:
    """Return the transpose of `fun`, a linear function of floating-point arrays.

    `primals` are arrays or `ShapeDtypeStruct`s; only their shapes and element types are used. The
    transpose takes a cotangent of the type of the result of `fun`, and returns a tuple of
    cotangents of the types of `primals`. Raises `DifferentiateError` if `fun` is not linear.
    """
    name = name_of(fun)
    leaves, structure = tree.flatten(tuple(primals))
    abstracts = [abstract_of(leaf) for leaf in leaves]
    for abstract in abstracts:
        if abstract.type.dtype not in INEXACT:
            raise DifferentiateError(
                point(f"linear_transpose of {name} needs floating arguments, got {abstract.type}")
            )
    outs, results = tree.flatten(eval_shape(fun, *primals))
    origins: list[Tracer | Varying] = [
        leaf if isinstance(leaf, Tracer) else NONE for leaf in leaves
    ]

    def flat(*tracers: Tracer) -> list[Tracer]:
        made = tree.leaves(fun(*tree.unflatten(structure, tracers)))
        return [returned(x, i, results, name) for i, x in enumerate(made)]

    def apply_transpose(*cotangents: Tracer) -> list[Tracer]:
        function, _ = trace_function(flat, abstracts, name, (), origins)
        made = explicit(function, origins)
        moves = (v.type.dtype in INEXACT for v in function.body.returns)
        vma = [each for each, moving in zip(made.results, moves, strict=True) if moving]
        check_cotangents(f"the transpose of {name}", cotangents, vma)
        function = made.function
        both = derived(lambda: linearize(function, range(len(abstracts))))
        body, count = both.forward.body, len(function.body.returns)
        moving = depending(body, body.params)
        if any(value in moving for value in body.returns[count:]):
            raise DifferentiateError(point(f"linear_transpose of {name}, which is not linear"))
        # The residuals of the pullback do not depend on the arguments, so zeros suffice.
        zeros = [splat(0, abstract.type) for abstract in abstracts]
        saved = append_block(body, zeros, function.body)[count:]
        back = both.pullback.body
        values = append_block(back, [*map(wrap, saved), *cotangents], body)
        return [wrap(value) for value in values]

    def transpose(cotangent: Any) -> Any:
        given = fitting("cotangent", f"the transpose of {name}", "result", outs, results, cotangent)
        if current() is not None:
            made = apply_transpose(*map(as_tracer, given))
        else:
            labels = labels_of("cotangent", cotangent)
            made = run_fleeting(apply_transpose, name, given, labels)
        return tree.unflatten(structure, made)

    return transpose


def closure_convert(fun: Callable[..., Any], *example_args: Any) -> tuple[Any, list[Any]]:
    """Return `fun` with its captured values as additional arguments, and the list of these values.

    Traced floating-point values that `fun`, called with `example_args`, captures become arguments;
    `converted(*args, *closed)` then computes `fun(*args)`. Outside of a trace there are none.
    """
    check_function("closure_convert", fun)
    name = name_of(fun)
    if current() is None:
        return (lambda *args: fun(*args)), []
    leaves, structure = tree.flatten(example_args)
    found: list[tree.PyTreeDef] = []

    def flat(*tracers: Tracer) -> list[Tracer]:
        out, kind = tree.flatten(called(fun, name, tree.unflatten(structure, tracers)))
        found.append(kind)
        return [returned(x, i, kind, name) for i, x in enumerate(out)]

    abstracts = [abstract_of(leaf) for leaf in leaves]
    block, results = trace_block(flat, abstracts, name)
    closed = [value for value in block.captures() if value.type.dtype in INEXACT]
    params = (*block.params, *closed)

    def call_converted(*args: Any) -> Any:
        trace = require(name)
        count = len(args) - len(closed)
        if count < 0:
            raise ArgumentError(point(f"{name} takes {len(closed)} closed-over values at its end"))
        given, kind = tree.flatten(args[:count])
        if kind != structure:
            raise ArgumentError(
                point(f"{name} was converted for {shown(structure)}, called with {shown(kind)}")
            )
        tracers = [as_tracer(x) for x in (*given, *args[count:]) if is_array_like(x)]
        b = Builder(trace.program.names)
        whole = type(block)(params, block.ops, block.returns)
        values = inline(b, whole, [x.value for x in tracers])
        trace.ops.extend(b.ops)
        made = [wrap(v, a.weak) for v, a in zip(values, results, strict=True)]
        return tree.unflatten(found[-1], made)

    return call_converted, [wrap(value) for value in closed]
