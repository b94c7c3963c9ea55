"""The arguments at which a derivative is taken, and the residuals of the derivative.

`Primals` traces a function at a point. A `Derivative` is the linear part of the computation with
its residuals, so that it can be inlined into any program, any number of times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from shardir.build import Builder, inline
from shardir.errors import DifferentiateError
from shardir.frontend import tree
from shardir.frontend.amounts import flag_of
from shardir.frontend.annotations import retold
from shardir.frontend.calling import is_array_like, returned, run_fleeting
from shardir.frontend.errors import ArgumentError, NotAnArrayError
from shardir.frontend.locations import point
from shardir.frontend.operands import abstract_of, as_tracer, convert, kind_of
from shardir.frontend.parameters import Parameters, check_call, labels_of
from shardir.frontend.promotion import Abstract
from shardir.frontend.quoting import brief, brief_with_type
from shardir.frontend.trace import append_block, current, require, trace_function, wrap
from shardir.frontend.traced_program import Program
from shardir.frontend.tracer import Tracer
from shardir.frontend.varying import check_cotangents, explicit
from shardir.frontend.wrt import NO_GRADIENT
from shardir.ir import Block, Function, Value
from shardir.types import COMPLEX, INEXACT, TensorType
from shardir.vma import NONE, Varying


def derived(make: Callable[[], Any]) -> Any:
    """Call `make`, which runs a pass, and add the user's line to its errors."""
    try:
        return make()
    except DifferentiateError as error:
        raise DifferentiateError(point(str(error))) from None


def fitting(
    word: str,
    whose: str,
    of: str,
    leaves: Sequence[Any],
    structure: tree.PyTreeDef,
    given: Any,
    labels: Sequence[str] = (),
) -> list[Any]:
    """Return the leaves of `given` for the differentiable leaves; raises `ArgumentError` for
    others."""
    each, found = tree.flatten(given)
    if found != structure:
        raise ArgumentError(
            point(
                f"{whose} got {word}s in {_shown(found)}, and its {of}s are in {_shown(structure)}"
                f"; pass one {word} for each"
            )
        )
    paths = ["".join(f"[{entry!r}]" for entry in path) for path in structure.paths()]
    names = labels or [f"{of}{path}" if path else f"the {of}" for path in paths]
    chosen = []
    for leaf, step, name in zip(leaves, each, names, strict=True):
        wanted = abstract_of(leaf).type
        moves, empty = wanted.dtype in INEXACT, getattr(step, "dtype", None) == NO_GRADIENT
        if empty and not moves:
            continue
        if moves and not empty and is_array_like(step) and _fits(abstract_of(step), wanted):
            chosen.append(step)
            continue
        described = "float0" if empty else _told(step)
        if moves:
            way_out = "give one of that type"
        elif word == "tangent":
            way_out = "integers have no tangents, so let the function capture it instead"
        else:
            way_out = "integers have none, so return it as aux, with has_aux=True"
        raise ArgumentError(
            point(f"{whose} got a {word} {described} for {name}, which is {wanted}; {way_out}")
        )
    return chosen


def _fits(given: Abstract, wanted: TensorType) -> bool:
    """Return whether `given` has the type `wanted`, or is a Python number that converts to it."""
    if given.type == wanted:
        return True
    is_real = given.type.dtype not in COMPLEX
    return given.weak and given.type.shape == wanted.shape and (is_real or wanted.dtype in COMPLEX)


def _told(step: Any) -> str:
    if is_array_like(step):
        return str(abstract_of(step).type)
    return f"{brief_with_type(step)}"


def _shown(structure: tree.PyTreeDef) -> str:
    return repr(tree.unflatten(structure, [_Star()] * structure.num_leaves))


class _Star:
    def __repr__(self) -> str:
        return "*"


@dataclass(frozen=True)
class TracedAt:
    """A function traced at a point; `inexact_results` are its differentiable results."""

    function: Function
    results: tuple[Abstract, ...]
    count: int
    structures: Sequence[tree.PyTreeDef]
    vma: tuple[Varying, ...] = ()
    """The varying axes of each result."""

    @property
    def numbers(self) -> list[int]:
        """The positions of the results that have derivatives."""
        return [i for i in range(self.count) if self.results[i].type.dtype in INEXACT]

    @property
    def moving(self) -> int:
        return len(self.numbers)

    def wrapped(self, values: Sequence[Value]) -> tuple[Any, Any]:
        """Return the results and the auxiliary data as pytrees."""
        weak = [result.weak for result in self.results]
        made = [wrap(value, flag) for value, flag in zip(values, weak, strict=False)]
        results, aux = self.structures
        return (
            tree.unflatten(results, made[: self.count]),
            tree.unflatten(aux, made[self.count :]),
        )


@dataclass(frozen=True)
class Primals:
    """The arguments at which a derivative is taken; `active` are the differentiable leaves."""

    what: str
    fun: Callable[..., Any]
    name: str
    has_aux: bool
    leaves: list[Any]
    structure: tree.PyTreeDef
    labels: list[str]
    active: list[int]
    own: Varying = NONE
    """The manual axes along which each device counts as having separate arguments."""

    @classmethod
    def of(
        cls,
        what: str,
        fun: Callable[..., Any],
        primals: Sequence[Any],
        has_aux: bool,
        own: Varying = NONE,
    ) -> Any:
        if not callable(fun):
            raise ArgumentError(point(f"{what} takes a function, got {brief(fun)}"))
        parameters = Parameters.of(fun)
        leaves, structure = tree.flatten(tuple(primals))
        labels = [
            label for i, x in enumerate(primals) for label in labels_of(parameters.label(i), x)
        ]
        for leaf, label in zip(leaves, labels, strict=True):
            if not is_array_like(leaf):
                raise NotAnArrayError(
                    point(
                        f"{what} of {parameters.name} is taken with respect to {label}, which is "
                        f"{brief_with_type(leaf)} and no array; let the function "
                        "capture it, for example in a lambda"
                    )
                )
        active = [i for i, leaf in enumerate(leaves) if kind_of(leaf)[0] in INEXACT]
        has_aux = flag_of(f"has_aux of {what}", has_aux)
        return cls(what, fun, parameters.name, has_aux, leaves, structure, labels, active, own)

    @property
    def primals(self) -> list[Any]:
        """The differentiable leaves."""
        return [self.leaves[i] for i in self.active]

    @property
    def names(self) -> list[str]:
        return [self.labels[i] for i in self.active]

    @property
    def weak(self) -> list[bool]:
        return [kind_of(leaf)[1] for leaf in self.primals]

    def fitted(self, word: str, given: Sequence[Any]) -> list[Any]:
        """Return the tangents of the differentiable leaves."""
        whose = f"{self.what} of {self.name}"
        return fitting(
            word, whose, "argument", self.leaves, self.structure, tuple(given), self.labels
        )

    def run(self, fun: Callable[..., Any], leaves: Sequence[Any], labels: Sequence[str]) -> Any:
        """Call a function of tracers with arrays, in the current trace or in a temporary one."""
        if current() is not None:
            return fun(*map(as_tracer, leaves))
        return run_fleeting(fun, self.name, leaves, labels)

    def trace(self, tracers: Sequence[Tracer]) -> TracedAt:
        """Trace the function with tracers in place of the differentiable leaves."""
        structures: list[tree.PyTreeDef] = []
        counts: list[int] = []

        def flat(*inner: Tracer) -> list[Tracer]:
            filled = list(self.leaves)
            for i, tracer in zip(self.active, inner, strict=True):
                filled[i] = tracer
            args = tree.unflatten(self.structure, filled)
            check_call(self.fun, self.name, args)
            out = self.fun(*args)
            if self.has_aux and not (isinstance(out, tuple) and len(out) == 2):
                raise ArgumentError(
                    point(
                        f"{self.name} has has_aux=True, so it must return (results, aux); it "
                        f"returned {out!r}"
                    )
                )
            flattened = [tree.flatten(part) for part in (out if self.has_aux else (out, None))]
            structures.extend(found for _, found in flattened)
            counts.append(len(flattened[0][0]))
            return [
                returned(leaf, i, found, self.name)
                for leaves, found in flattened
                for i, leaf in enumerate(leaves)
            ]

        abstracts = [tracer.abstract for tracer in tracers]
        function, results = trace_function(flat, abstracts, self.name, self.names, tracers)
        shown = explicit(function, tracers, self.own)
        return TracedAt(shown.function, results, counts[0], structures, shown.results)

    def keep(
        self, derive: Callable[[Function, Sequence[int]], tuple[Function, Function]]
    ) -> tuple[Any, Any, "Derivative"]:
        """Return the results, the auxiliary data, and the derivative with its residuals."""
        found: list[tuple[Block, Program, list[Varying]]] = []

        def linearize(*tracers: Tracer) -> Any:
            traced = self.trace(tracers)
            first, second = derived(lambda: derive(traced.function, traced.numbers))
            values = append_block(first.body, tracers, traced.function.body)
            outside = second.body.captures()
            block = replace(second.body, params=(*outside, *second.body.params))
            vma = [traced.vma[i] for i in traced.numbers]
            found.append((block, require("a derivative").program, vma))
            saved = [*outside, *values[len(traced.results) :]]
            return (*traced.wrapped(values), [wrap(value) for value in saved])

        results, aux, saved = self.run(linearize, self.primals, self.names)
        return results, aux, Derivative(f"{self.what} of {self.name}", *found[0], saved)


@dataclass(frozen=True)
class Derivative:
    """A derivative at a point: the linear part of the computation, with its residuals.

    `block` takes `residuals` and directions; it was traced in `program`. `varying_axes` are the
    varying axes of each result that has a cotangent.
    """

    name: str
    block: Block
    program: Program
    vma: Sequence[Varying]
    saved: Sequence[Any]

    def __call__(self, given: Sequence[Any], like: Sequence[Any], weak: Sequence[bool]) -> Any:
        """Return the derivative along directions, which have the types of `like`."""
        dtypes = [kind_of(x)[0] for x in like]
        labels = [f"saved.{i}" for i in range(len(self.saved))]
        labels += [f"direction.{i}" for i in range(len(given))]
        leaves = [*self.saved, *given]
        if current() is not None:
            return self._apply(dtypes, weak, *map(as_tracer, leaves))
        return run_fleeting(partial(self._apply, dtypes, weak), self.name, leaves, labels)

    def check_cotangents(self, given: Sequence[Any]) -> None:
        """Raise `ShardingError` for a cotangent that varies where its result does not."""
        if current() is not None:
            check_cotangents(self.name, list(map(as_tracer, given)), self.vma)

    def _apply(self, dtypes: Sequence[str], weak: Sequence[bool], *tracers: Tracer) -> list[Tracer]:
        trace = require(self.name)
        count = len(self.saved)
        moved = [convert(x, to) for x, to in zip(tracers[count:], dtypes, strict=True)]
        b = Builder(trace.program.names)
        args = [x.value for x in (*tracers[:count], *moved)]
        values = inline(b, self._told(trace.program), args)
        trace.ops.extend(b.ops)
        return [wrap(value, flag) for value, flag in zip(values, weak, strict=True)]

    def _told(self, program: Program) -> Block:
        """Return the block with its constraints as tokens of the program into which it is
        inlined."""
        if program is self.program:
            return self.block
        return retold(self.block, list(self.program.asked), program)
