"""Control flow on traced values: `scan`, `while_loop`, `fori_loop`, `cond`, `switch`, `map`.

Each traces the functions it is given as blocks of one operation. The functions may use traced
values from around them; those become the constants of the loop. Semantics follow `jax.lax`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shardir.frontend import promotion, tree
from shardir.frontend.eager import public
from shardir.frontend.errors import ControlFlowError
from shardir.frontend.locations import point
from shardir.frontend.operands import as_tracer, convert
from shardir.frontend.promotion import Abstract
from shardir.frontend.trace import emit, trace_block
from shardir.frontend.tracer import Tracer
from shardir.ir import Block
from shardir.types import INTEGERS, TensorType

Kind = tuple[str, bool]
"""An element type and whether it is weak."""


@dataclass
class _Traced:
    """A function traced as a block: the block, what is known of its results, their containers."""

    block: Block
    results: tuple[Abstract, ...]
    structure: tree.PyTreeDef


def _trace(
    fun: Callable[..., Any],
    params: Sequence[Abstract],
    structures: Sequence[tree.PyTreeDef],
    what: str,
    names: Sequence[str] = (),
    kinds: Sequence[Kind] | None = None,
) -> _Traced:
    """Trace `fun`, called with one container for each of `structures`.

    The leaves of its arguments are `params`; its results are converted to `kinds` if given.
    """
    seen: list[tree.PyTreeDef] = []

    def flat(*leaves: Tracer) -> list[Tracer]:
        rest = list(leaves)
        args = []
        for structure in structures:
            count = structure.num_leaves
            args.append(tree.unflatten(structure, rest[:count]))
            rest = rest[count:]
        out, structure = tree.flatten(fun(*args))
        seen.append(structure)
        results = [as_tracer(x) for x in out]
        if kinds is not None:
            results = [convert(x, *kind) for x, kind in zip(results, kinds, strict=True)]
        return results

    block, results = trace_block(flat, params, what, names)
    return _Traced(block, results, seen[-1])


def _named(container: Any, stem: str) -> list[str]:
    count = len(tree.leaves(container))
    return [stem] if count == 1 else [f"{stem}.{i}" for i in range(count)]


def _tracers(container: Any) -> tuple[list[Tracer], tree.PyTreeDef]:
    leaves, structure = tree.flatten(container)
    return [as_tracer(x) for x in leaves], structure


def _several(results: Any) -> list[Tracer]:
    return list(results) if isinstance(results, tuple) else [results]


def _kind(abstract: Abstract) -> Kind:
    return abstract.type.dtype, abstract.weak


def _settled(carried: list[Tracer], out: Sequence[Abstract], what: str) -> list[Tracer] | None:
    """The carried values with the element types the body gives back, or `None` if they have them.

    Only values that came from Python numbers alone change. Raises `ControlFlowError` otherwise.
    """
    changed = False
    settled = []
    for i, (value, got) in enumerate(zip(carried, out, strict=True)):
        have = value.abstract
        if have.type == got.type and have.weak == got.weak:
            settled.append(value)
            continue
        joined = promotion.result_type(_kind(have), _kind(got))
        if (
            have.type.shape != got.type.shape
            or (have.type != got.type and joined[0] != got.type.dtype)
            or (have.type != got.type and not have.weak)
        ):
            raise ControlFlowError(
                point(
                    f"{what} must give back what it is carried: value {i} goes in as {have.type} "
                    f"and comes out as {got.type}; make both one type, for example with .astype"
                )
            )
        changed = changed or have.type != got.type or have.weak != joined[1]
        settled.append(convert(value, *joined))
    return settled if changed else None


@public(static=("f", "length", "reverse", "unroll"), cached=False)
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """Carry `init` through `f(carry, x) -> (carry, y)` along the first dimension of `xs`.

    Returns the last carry and the stacked `y`. `length` is needed only without `xs`; `reverse`
    goes from the last slice to the first; `unroll` is accepted for compatibility and ignored.
    Raises `ControlFlowError` when the carry changes its containers, shape or element type, or the
    leading sizes of `xs` differ.
    """
    what = "the body of scan"
    carried, structure = _tracers(init)
    stacked, stacked_structure = _tracers(xs)
    count = _length(stacked, length)
    slices = [Abstract(TensorType(x.shape[1:], x.value.type.dtype), x.weak_type) for x in stacked]
    names = [*_named(init, "carry"), *_named(xs, "x")]
    while True:
        params = [*(c.abstract for c in carried), *slices]
        traced = _trace(f, params, (structure, stacked_structure), what, names)
        out = tree.unflatten(traced.structure, range(traced.structure.num_leaves))
        if not isinstance(out, tuple) or len(out) != 2:
            raise ControlFlowError(
                point(f"{what} must return a pair (carry, y), it returned {traced.structure}")
            )
        _same_structure(structure, tree.structure(out[0]), what)
        settled = _settled(carried, traced.results[: len(carried)], what)
        if settled is None:
            break
        carried = settled
    results = (
        _several(
            emit(
                "scan",
                *carried,
                *stacked,
                blocks=(traced.block,),
                carries=len(carried),
                length=count,
                reverse=bool(reverse),
            )
        )
        if traced.results
        else []
    )
    weak = [Tracer(r._trace, r.value, a.weak, r._site)
            for r, a in zip(results, traced.results, strict=True)]  # fmt: skip
    both: tuple[Any, Any] = tree.unflatten(traced.structure, weak)
    return both


def _length(stacked: Sequence[Tracer], length: int | None) -> int:
    sizes = []
    for x in stacked:
        if not x.ndim:
            raise ControlFlowError(
                point("scan goes along the first dimension of xs; one is a scalar")
            )
        sizes.append(x.shape[0])
    if length is not None:
        sizes.append(int(length))
    if not sizes:
        raise ControlFlowError(point("scan without xs needs length="))
    if len(set(sizes)) > 1:
        told = ", ".join(map(str, sizes))
        raise ControlFlowError(point(f"scan needs one leading size, got {told}"))
    return sizes[0]


def _same_structure(wanted: tree.PyTreeDef, got: tree.PyTreeDef, what: str) -> None:
    if wanted != got:
        raise ControlFlowError(
            point(f"{what} must give back what it is carried: {wanted} goes in, {got} comes out")
        )


@public(static=("cond_fun", "body_fun"), cached=False)
def while_loop(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any
) -> Any:
    """`body_fun` applied to `init_val` again and again while `cond_fun` says true.

    `cond_fun` must return a bool of rank 0, `body_fun` what it is given. Has no reverse-mode
    derivative; use `fori_loop` with static bounds or `scan` where one is needed.
    """
    what = "the body of while_loop"
    carried, structure = _tracers(init_val)
    names = _named(init_val, "carry")
    while True:
        params = [c.abstract for c in carried]
        body = _trace(body_fun, params, (structure,), what, names)
        _same_structure(structure, body.structure, what)
        settled = _settled(carried, body.results, what)
        if settled is None:
            break
        carried = settled
    condition = _trace(cond_fun, params, (structure,), "the condition of while_loop", names)
    kinds = [str(a.type) for a in condition.results]
    if kinds != ["bool[]"]:
        raise ControlFlowError(
            point(f"the condition of while_loop must be a bool[], it is {', '.join(kinds)}")
        )
    if not carried:
        raise ControlFlowError(point("while_loop carries nothing; it would never end or never run"))
    results = _several(emit("while", *carried, blocks=(condition.block, body.block)))
    return tree.unflatten(structure, _weakened(results, carried))


def _weakened(results: Sequence[Tracer], like: Sequence[Tracer]) -> list[Tracer]:
    pairs = zip(results, like, strict=True)
    return [Tracer(r._trace, r.value, x.weak_type, r._site) for r, x in pairs]


@public(static=("body_fun", "unroll"), cached=False)
def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    unroll: int | bool | None = None,
) -> Any:
    """`init_val` through `body_fun(i, value) -> value` for i = lower, ..., upper - 1.

    With bounds known while tracing it is a `scan`, which has derivatives; otherwise a
    `while_loop`. Bounds must be integers.
    """
    from shardir.frontend import numpy as snp

    known = [_static_int(lower), _static_int(upper)]
    if None not in known:
        start, stop = known
        count = max(stop - start, 0)  # type: ignore[operator]

        def step(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
            i, value = carry
            return (i + 1, body_fun(i, value)), None

        (_, value), _ = scan(step, (snp.asarray(start), init_val), None, length=count)
        return value
    first, last = as_tracer(lower), as_tracer(upper)
    for bound in (first, last):
        if bound.value.type.dtype not in INTEGERS or bound.ndim:
            raise ControlFlowError(
                point(f"the bounds of fori_loop are integers of rank 0, got {bound.value.type}")
            )

    def going(carry: tuple[Any, Any]) -> Any:
        return carry[0] < last

    def body(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        return carry[0] + 1, body_fun(*carry)

    return while_loop(going, body, (first, init_val))[1]


def _static_int(x: Any) -> int | None:
    """The bound if it is known while tracing."""
    if isinstance(x, Tracer):
        return None
    try:
        return int(x.__index__())
    except (AttributeError, TypeError):
        return None


@public(static=("true_fun", "false_fun"), cached=False)
def cond(
    pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any
) -> Any:
    """`true_fun(*operands)` where `pred`, a scalar, is true (or not zero), else `false_fun`.

    Both must return the same containers, shapes and element types. Raises `ControlFlowError`.
    """
    from shardir.frontend import numpy as snp

    which = as_tracer(pred)
    if which.ndim:
        raise ControlFlowError(
            point(f"cond decides by a scalar, got {which.value.type}; use snp.where for elements")
        )
    if which.value.type.dtype != "bool":
        which = snp.not_equal(which, 0)
    return _switch(which, (false_fun, true_fun), operands, "a branch of cond")


@public(static=("branches",), cached=False)
def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`branches[index](*operands)`; an index out of range takes the first or the last.

    All branches must return the same containers, shapes and element types.
    """
    from shardir.frontend import numpy as snp

    branches = tuple(branches)
    if not branches:
        raise ControlFlowError(point("switch needs at least one branch"))
    which = as_tracer(index)
    if which.ndim or which.value.type.dtype not in INTEGERS:
        raise ControlFlowError(point(f"switch takes an integer scalar, got {which.value.type}"))
    if len(branches) == 1:
        return branches[0](*operands)
    which = convert(snp.clip(which, 0, len(branches) - 1), "i32")
    return _switch(which, branches, operands, "a branch of switch")


def _switch(
    which: Tracer, branches: Sequence[Callable[..., Any]], operands: Sequence[Any], what: str
) -> Any:
    traced = [_trace(lambda f=f: f(*operands), (), (), what) for f in branches]
    first = traced[0]
    for other in traced[1:]:
        if other.structure != first.structure:
            raise ControlFlowError(
                point(f"branches must return the same: {first.structure} and {other.structure}")
            )
    kinds: list[Kind] = []
    for i, results in enumerate(zip(*(t.results for t in traced), strict=True)):
        kind = promotion.result_type(*map(_kind, results))
        if any(
            r.type.shape != results[0].type.shape or (r.type.dtype != kind[0] and not r.weak)
            for r in results
        ):
            told = " and ".join(dict.fromkeys(str(r.type) for r in results))
            raise ControlFlowError(
                point(f"branches must return the same types: value {i} is {told}")
            )
        kinds.append(kind)
    if any(_kind(r) != k for t in traced for r, k in zip(t.results, kinds, strict=True)):
        traced = [_trace(lambda f=f: f(*operands), (), (), what, (), kinds) for f in branches]
    if not kinds:
        return tree.unflatten(first.structure, [])
    results = _several(emit("case", which, blocks=tuple(t.block for t in traced)))
    weak = [Tracer(r._trace, r.value, k[1], r._site)
            for r, k in zip(results, kinds, strict=True)]  # fmt: skip
    return tree.unflatten(first.structure, weak)


@public(static=("f", "batch_size"), cached=False)
def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """`f` of every slice of `xs` along the first dimension, one after the other, stacked."""
    return scan(lambda _, x: (None, f(x)), None, xs)[1]
