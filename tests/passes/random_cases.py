"""Random programs, shardings, meshes and pipelines of the fuzzer.

A case is a global program over any operations, including blocks, manual computations and
derivatives, with any shardings on some of its values, for one to eight devices in any mesh; and the
passes that make the per-device program.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from hypothesis import reject, strategies as st
from hypothesis.errors import InvalidArgument

from shardir.errors import DifferentiateError, OperationTypeError, VectorizeError
from shardir.frontend.random_programs.pointwise import POINTWISE
from shardir.frontend.random_programs.scope import SAMPLERS, SIZES, Scope, runnable_operations
from shardir.ir.builder import Builder
from shardir.ir.dtypes import KEYS
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.sharding import Sharding
from shardir.passes.autodiff.jvp import jvp
from shardir.passes.autodiff.vjp import vjp
from shardir.passes.batching.vectorize import vectorize
from shardir.passes.pipeline import DEFAULT_PIPELINE, SHARDY_PIPELINE, Pipeline
from shardir.passes.resharding.cost import with_unreduced
from shardir.passes.simplify.inline import inline_regions
from tests.dtype_groups import INEXACT
from tests.programs.hypothesis_choices import HypothesisChoices
from tests.programs.shardings import any_shardings, shardings


def change_options(pipeline: str, name: str, **options: str) -> str:
    """Return the pipeline with other options of the pass with this name."""
    passes = Pipeline.parse(pipeline).passes
    return ",".join(str(replace(p, **options) if p.name == name else p) for p in passes)


UNEVEN = change_options(DEFAULT_PIPELINE, "propagate", border="uneven")
PIPELINES = (
    DEFAULT_PIPELINE,
    UNEVEN,
    change_options(DEFAULT_PIPELINE, "propagate", border="stated"),
    SHARDY_PIPELINE,
    change_options(SHARDY_PIPELINE, "propagate", border="uneven"),
    change_options(DEFAULT_PIPELINE, "reshard", uneven="replicate"),
    f"{UNEVEN},overlap",
    f"{UNEVEN},collective-matmul{{minimum=0}}",
    f"{DEFAULT_PIPELINE},collective-matmul{{minimum=0}},overlap",
    f"simplify,{UNEVEN}",
)
OTHERS = (
    *(name for name in runnable_operations(spmd=False) if name not in POINTWISE),
    *("manual_computation", "checkpoint", "checkpoint-name", "custom-jvp", "custom-vjp"),
    *("callback", "pure-callback", "inspect-sharding"),
)
"""What random programs do, besides pointwise operations."""
SHAPES = (SIZES, SIZES, SIZES, (1, 2, 3, 5, 6, 7, 9), (2, 4, 8), (0, 1, 4))
"""Sizes of dimensions; each program has some."""


@dataclass(frozen=True)
class Case:
    """A program, and the pipeline that transforms it."""

    pipeline: str
    module: Module

    def __str__(self) -> str:
        return f"{self.pipeline}\n\n{self.module}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


@st.composite
def cases(draw: st.DrawFn, *, size: int = 6) -> Case:
    """Draw a program of about `size` operations, and a pipeline."""
    mesh = draw(meshes())
    function = draw(functions(mesh, size))
    derived = draw(st.sampled_from(("", "", "", "", "", "vmap", "jvp", "vjp")))
    try:
        function = _differentiate(draw, function, derived)
    except (DifferentiateError, VectorizeError, OperationTypeError):
        reject()
    pipeline = draw(st.sampled_from(PIPELINES))
    module = Module((mesh,), (annotate(draw, inline_regions(function), mesh),))
    return Case(pipeline, module)


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    """Draw one to eight devices, in some order, along up to three axes."""
    sizes: list[int] = []
    for _ in range(draw(st.integers(1, 3))):
        most = 8 // prod(sizes)
        sizes.append(draw(st.integers(1 if most < 2 else 2, most)))
    axes = tuple(zip("xyz", (size for size in sizes if size > 1 or len(sizes) == 1), strict=False))
    count = prod(size for _, size in axes)
    ids = draw(st.none() | st.permutations(range(count)).map(tuple))
    return Mesh("m", axes, None if ids == tuple(range(count)) else ids)


@st.composite
def functions(draw: st.DrawFn, mesh: Mesh, size: int) -> Function:
    """Draw a program over any operations without shardings, which returns all unused values."""
    b = Builder()
    inner = [*runnable_operations(spmd=False), "checkpoint-name", "pure-callback"]
    sizes = draw(st.sampled_from(SHAPES))
    scope = Scope(HypothesisChoices(draw), b, mesh, inner=inner, sizes=sizes)
    for _ in range(draw(st.integers(1, size))):
        names = POINTWISE if draw(st.integers(0, 3)) == 0 else OTHERS
        try:
            SAMPLERS[draw(st.sampled_from(tuple(names)))](scope)
        except (InvalidArgument, OperationTypeError):
            # Some operations reject tensors without elements.
            if 0 not in scope.sizes:
                raise
            reject()
    used = {value for op in b.ops for value in op.uses()}
    returns = [value for op in b.ops for value in op.results if value not in used]
    return Function("main", b.block(scope.params, returns), (None,) * len(returns))


def _differentiate(draw: st.DrawFn, function: Function, how: str) -> Function:
    params = function.body.params
    moving = [i for i, value in enumerate(params) if value.type.dtype in INEXACT]
    if how == "vmap" and params:
        flags = [draw(st.booleans()) for _ in params]
        return vectorize(function, [True, *flags[1:]], draw(st.sampled_from((1, 2, 3, 4))))
    if how == "jvp" and moving:
        return jvp(function, moving)
    of = [i for i, value in enumerate(function.body.returns) if value.type.dtype in INEXACT]
    if how == "vjp" and moving and of:
        return vjp(function, moving, of)
    return function


def annotate(draw: st.DrawFn, function: Function, mesh: Mesh) -> Function:
    """Add shardings to values and results of the function: all, many, few or parameters."""
    often = draw(st.sampled_from((1, 2, 5, 0)))
    closed = draw(st.booleans())
    new: dict[Value, Value] = {}

    def cut(value: Value, mesh: Mesh, chosen: bool) -> Sharding | None:
        if not chosen:
            return None
        if not closed:
            return draw(any_shardings(mesh, value.type))
        pending = value.type.dtype not in KEYS and draw(st.integers(0, 9)) == 0
        return draw(shardings(mesh, value.type.shape, uneven=True, pending=pending))

    def chosen() -> bool:
        return often == 1 or (often > 1 and draw(st.integers(1, often)) == 1)

    def rebuilt(op: Op, mesh: Mesh) -> Op:
        operands = tuple(new[v] for v in op.operands)
        blocks = tuple(block(inner, _free_axes(mesh, op), chosen) for inner in op.blocks)
        results = tuple(define(v, mesh, chosen(), _manual_axes(op)) for v in op.results)
        return replace(op, operands=operands, blocks=blocks, results=results)

    def define(value: Value, mesh: Mesh, chosen: bool, complete: Set[str] = frozenset()) -> Value:
        sharding = cut(value, mesh, chosen)
        if sharding is not None:
            pending = tuple(axis for axis in sharding.unreduced if axis.name not in complete)
            sharding = with_unreduced(sharding, pending, sharding.reduction)
        new[value] = replace(value, sharding=sharding)
        return new[value]

    def block(old: Block, mesh: Mesh, chosen_param: Callable[[], Any]) -> Block:
        params = tuple(define(value, mesh, chosen_param()) for value in old.params)
        ops = tuple(rebuilt(op, mesh) for op in old.ops)
        return Block(params, ops, tuple(new[v] for v in old.returns))

    body = block(function.body, mesh, lambda: not often or chosen())
    results = tuple(cut(value, mesh, chosen()) for value in body.returns)
    return replace(function, body=body, result_shardings=results)


def _free_axes(mesh: Mesh, op: Op) -> Mesh:
    """Return the axes that shardings inside of an operation may use."""
    manual = _manual_axes(op)
    if not manual:
        return mesh
    return Mesh(mesh.name, tuple((name, n) for name, n in mesh.axes if name not in manual))


def _manual_axes(op: Op) -> Set[str]:
    """Return the names of the axes along which an operation states shards, not partial values."""
    return {axis.name for axis in op.attrs["axes"]} if op.name == "manual_computation" else set()
