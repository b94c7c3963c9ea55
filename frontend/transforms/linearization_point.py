"""The arguments at which a derivative is taken, and the residuals of the derivative.

`Primals` traces a function at a point. A `Derivative` is the linear part of the computation with
its residuals, so that it can be inlined into any program, any number of times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from shardir.errors import DifferentiateError
from shardir.frontend.argument_checks import check_flag
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.call_signatures import check_call_signature
from shardir.frontend.dispatch.temporary_programs import append_foreign_block, run_temporary
from shardir.frontend.dispatch.traced_calls import is_array_like, result_tracer
from shardir.frontend.errors import ArgumentError, NotAnArrayError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief, brief_with_type
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.function_tracing import trace_function
from shardir.frontend.tracing.operands import as_tracer, convert, operand_dtype
from shardir.frontend.tracing.parameters import Parameters, leaf_labels
from shardir.frontend.tracing.trace import append_block, current_trace, require_trace, wrap_value
from shardir.frontend.tracing.traced_program import TracedProgram
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.varying_axes import check_cotangents, make_varying_explicit
from shardir.frontend.transforms.differentiated_arguments import FLOAT0
from shardir.ir.module import Block, Function, Value
from shardir.ir.operation import NOT_VARYING, Varying
from shardir.ir.types import COMPLEX, INEXACT, TensorType


def run_derivative_pass(make: Callable[[], PyTree]) -> PyTree:
    """Call `make`, which runs a pass, and add the user's line to its errors."""
    try:
        return make()
    except DifferentiateError as error:
        raise DifferentiateError(with_location(str(error))) from None


def check_directions(
    word: str,
    whose: str,
    of: str,
    leaves: Sequence[object],
    structure: tree.PyTreeDef,
    given: object,
    labels: Sequence[str] = (),
) -> list[PyTree]:
    """Return the leaves of `given` for the differentiable leaves; raises `ArgumentError` for
    others."""
    each, found = tree.flatten(given)
    if found != structure:
        raise ArgumentError(
            with_location(
                f"{whose} got {word}s in {_format_structure(found)}, and its {of}s are in "
                f"{_format_structure(structure)}"
                f"; pass one {word} for each"
            )
        )
    paths = ["".join(f"[{entry!r}]" for entry in path) for path in structure.paths()]
    names = labels or [f"{of}{path}" if path else f"the {of}" for path in paths]
    chosen = []
    for leaf, step, name in zip(leaves, each, names, strict=True):
        expected = abstract_of(leaf).type
        is_inexact, empty = expected.dtype in INEXACT, getattr(step, "dtype", None) == FLOAT0
        if empty and not is_inexact:
            continue
        if (
            is_inexact
            and not empty
            and is_array_like(step)
            and _is_convertible(abstract_of(step), expected)
        ):
            chosen.append(step)
            continue
        described = "float0" if empty else _describe_direction(step)
        if is_inexact:
            way_out = "give one of that type"
        elif word == "tangent":
            way_out = "integers have no tangents, so let the function capture it instead"
        else:
            way_out = "integers have none, so return it as aux, with has_aux=True"
        raise ArgumentError(
            with_location(
                f"{whose} got a {word} {described} for {name}, which is {expected}; {way_out}"
            )
        )
    return chosen


def _is_convertible(given: AbstractValue, expected: TensorType) -> bool:
    """Return whether `given` has the type `expected`, or is a Python number that converts to
    it."""
    if given.type == expected:
        return True
    is_real = given.type.dtype not in COMPLEX
    return (
        given.weak
        and given.type.dtype in INEXACT
        and given.type.shape == expected.shape
        and (is_real or expected.dtype in COMPLEX)
    )


def _describe_direction(step: object) -> str:
    if is_array_like(step):
        return str(abstract_of(step).type)
    return f"{brief_with_type(step)}"


def _format_structure(structure: tree.PyTreeDef) -> str:
    return repr(tree.unflatten(structure, [_LeafPlaceholder()] * structure.num_leaves))


class _LeafPlaceholder:
    def __repr__(self) -> str:
        return "*"


@dataclass(frozen=True)
class TracedAtPoint:
    """A function traced at a point; `inexact_results` are its differentiable results."""

    function: Function
    results: tuple[AbstractValue, ...]
    count: int
    structures: Sequence[tree.PyTreeDef]
    varying_axes: tuple[Varying, ...] = ()
    """The varying axes of each result."""

    @property
    def inexact_results(self) -> list[int]:
        """The positions of the results that have derivatives."""
        return [i for i in range(self.count) if self.results[i].type.dtype in INEXACT]

    @property
    def num_inexact_results(self) -> int:
        return len(self.inexact_results)

    def wrap_results(self, values: Sequence[Value]) -> tuple[Tracer, Tracer]:
        """Return the results and the auxiliary data as pytrees."""
        weak = [result.weak for result in self.results]
        made = [wrap_value(value, flag) for value, flag in zip(values, weak, strict=False)]
        results, aux = self.structures
        return (
            tree.unflatten(results, made[: self.count]),
            tree.unflatten(aux, made[self.count :]),
        )


@dataclass(frozen=True)
class Primals:
    """The arguments at which a derivative is taken; `active` are the differentiable leaves."""

    what: str
    fun: UserFunction
    name: str
    has_aux: bool
    leaves: list[object]
    structure: tree.PyTreeDef
    labels: list[str]
    active: list[int]
    per_device_axes: Varying = NOT_VARYING
    """The manual axes along which each device counts as having separate arguments."""

    @classmethod
    def of(
        cls,
        what: str,
        fun: UserFunction,
        primals: Sequence[PyTree],
        has_aux: bool,
        own: Varying = NOT_VARYING,
    ) -> PyTree:
        if not callable(fun):
            raise ArgumentError(with_location(f"{what} takes a function, got {brief(fun)}"))
        parameters = Parameters.of(fun)
        leaves, structure = tree.flatten(tuple(primals))
        labels = [
            label for i, x in enumerate(primals) for label in leaf_labels(parameters.label(i), x)
        ]
        for leaf, label in zip(leaves, labels, strict=True):
            if not is_array_like(leaf):
                raise NotAnArrayError(
                    with_location(
                        f"{what} of {parameters.name} is taken with respect to {label}, which is "
                        f"{brief_with_type(leaf)} and not an array; let the function "
                        "capture it, for example in a lambda"
                    )
                )
        active = [i for i, leaf in enumerate(leaves) if operand_dtype(leaf)[0] in INEXACT]
        has_aux = check_flag(f"has_aux of {what}", has_aux)
        return cls(what, fun, parameters.name, has_aux, leaves, structure, labels, active, own)

    @property
    def primals(self) -> list[PyTree]:
        """The differentiable leaves."""
        return [self.leaves[i] for i in self.active]

    @property
    def names(self) -> list[str]:
        return [self.labels[i] for i in self.active]

    @property
    def weak(self) -> list[bool]:
        return [operand_dtype(leaf)[1] for leaf in self.primals]

    def check_tangents(self, word: str, given: Sequence[object]) -> list[PyTree]:
        """Return the tangents of the differentiable leaves."""
        whose = f"{self.what} of {self.name}"
        return check_directions(
            word, whose, "argument", self.leaves, self.structure, tuple(given), self.labels
        )

    def run(self, fun: UserFunction, leaves: Sequence[object], labels: Sequence[str]) -> PyTree:
        """Call a function of tracers with arrays, in the current trace or in a temporary one."""
        if current_trace() is not None:
            return fun(*map(as_tracer, leaves))
        return run_temporary(fun, self.name, leaves, labels)

    def trace(self, tracers: Sequence[Tracer]) -> TracedAtPoint:
        """Trace the function with tracers in place of the differentiable leaves."""
        structures: list[tree.PyTreeDef] = []
        counts: list[int] = []

        def flat(*inner: Tracer) -> list[Tracer]:
            filled = list(self.leaves)
            for i, tracer in zip(self.active, inner, strict=True):
                filled[i] = tracer
            args = tree.unflatten(self.structure, filled)
            check_call_signature(self.fun, self.name, args)
            out = self.fun(*args)
            if self.has_aux and not (isinstance(out, tuple) and len(out) == 2):
                raise ArgumentError(
                    with_location(
                        f"{self.name} has has_aux=True, so it must return (results, aux); it "
                        f"returned {out!r}"
                    )
                )
            flattened = [tree.flatten(part) for part in (out if self.has_aux else (out, None))]
            structures.extend(found for _, found in flattened)
            counts.append(len(flattened[0][0]))
            return [
                result_tracer(leaf, i, found, self.name)
                for leaves, found in flattened
                for i, leaf in enumerate(leaves)
            ]

        abstracts = [tracer.abstract for tracer in tracers]
        function, results = trace_function(flat, abstracts, self.name, self.names, tracers, tracers)
        shown = make_varying_explicit(function, tracers, self.per_device_axes)
        return TracedAtPoint(shown.function, results, counts[0], structures, shown.results)

    def linearize(
        self, derive: Callable[[Function, Sequence[int]], tuple[Function, Function]]
    ) -> tuple[PyTree, PyTree, "Derivative"]:
        """Return the results, the auxiliary data, and the derivative with its residuals."""
        found: list[tuple[Block, TracedProgram, list[Varying]]] = []
        sources: list[int | None] = []

        def linearize(*tracers: Tracer) -> PyTree:
            traced = self.trace(tracers)
            first, second = run_derivative_pass(
                lambda: derive(traced.function, traced.inexact_results)
            )
            values = append_block(first.body, tracers, traced.function.body)
            outside = second.body.captures()
            block = replace(second.body, params=(*outside, *second.body.params))
            vma = [traced.varying_axes[i] for i in traced.inexact_results]
            found.append((block, require_trace("a derivative").program, vma))
            saved = [*outside, *values[len(traced.results) :]]
            positions = {tracer.value: i for i, tracer in enumerate(tracers)}
            sources[:] = [positions.get(value) for value in saved]
            return (*traced.wrap_results(values), [wrap_value(value) for value in saved])

        results, aux, saved = self.run(linearize, self.primals, self.names)
        name = f"{self.what} of {self.name}"
        return results, aux, Derivative(name, *found[0], saved, sources)


@dataclass(frozen=True)
class Derivative:
    """A derivative at a point: the linear part of the computation, with its residuals.

    `block` takes `residuals` and directions; it was traced in `program`. `varying_axes` are the
    varying axes of each result that has a cotangent. `sources` states for each residual which
    differentiable argument it is, if it is one.
    """

    name: str
    block: Block
    program: TracedProgram
    varying_axes: Sequence[Varying]
    residuals: Sequence[object]
    sources: Sequence[int | None]

    def __call__(
        self, given: Sequence[object], like: Sequence[object], weak: Sequence[bool]
    ) -> PyTree:
        """Return the derivative along directions, which have the types of `like`."""
        dtypes = [operand_dtype(x)[0] for x in like]
        labels = [f"saved.{i}" for i in range(len(self.residuals))]
        labels += [f"direction.{i}" for i in range(len(given))]
        leaves = [*self.residuals, *given]
        if current_trace() is not None:
            return self._apply(dtypes, weak, *map(as_tracer, leaves))
        return run_temporary(partial(self._apply, dtypes, weak), self.name, leaves, labels)

    def check_cotangents(self, given: Sequence[object]) -> None:
        """Raise `ShardingError` for a cotangent that varies where its result does not."""
        if current_trace() is not None:
            check_cotangents(self.name, list(map(as_tracer, given)), self.varying_axes)

    def _apply(self, dtypes: Sequence[str], weak: Sequence[bool], *tracers: Tracer) -> list[Tracer]:
        count = len(self.residuals)
        converted = [convert(x, to) for x, to in zip(tracers[count:], dtypes, strict=True)]
        requested = list(self.program.requested_shardings)
        values = append_foreign_block(self.block, requested, [*tracers[:count], *converted])
        return [wrap_value(value, flag) for value, flag in zip(values, weak, strict=True)]
