"""Rules of primitives with programs inside: calls, loops, branches, checkpoints."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardir.frontend import lax
from shardir.frontend.checkpointing import checkpoint, checkpoint_name
from shardir.frontend.interop.rules import Equation, rule
from shardir.frontend.interop.shardings import constrained
from shardir.frontend.operands import constant
from shardir.frontend.tracer import Tracer


@rule("jit")
def _called(equation: Equation) -> Any:
    """A function that JAX would compile by itself is part of the program around it."""
    params = equation.params
    ins = params.get("in_shardings") or (None,) * len(equation.operands)
    args = [
        x if sharding is None or not isinstance(x, Tracer) else constrained(x, sharding)
        for x, sharding in zip(equation.operands, ins, strict=True)
    ]
    made = equation.reader.read(params["jaxpr"], args)
    outs = params.get("out_shardings") or (None,) * len(made)
    return [constrained(x, sharding) for x, sharding in zip(made, outs, strict=True)]


def _inlined(equation: Equation) -> Any:
    params = equation.params
    program = next(params[key] for key in ("call_jaxpr", "call", "jaxpr") if key in params)
    if hasattr(program, "consts"):
        return equation.reader.read(program, equation.operands)
    return equation.reader.read_open(program, (), equation.operands)


for _name in ("call", "closed_call", "composite", "custom_partitioning", "custom_vmap_call"):
    rule(_name)(_inlined)


@rule("scan")
def _scanned(equation: Equation) -> Any:
    params = equation.params
    args, consts, carries = equation.tracers, params["num_consts"], params["num_carry"]
    fixed, init, xs = args[:consts], args[consts : consts + carries], args[consts + carries :]

    def body(carry: Sequence[Tracer], x: Sequence[Tracer]) -> Any:
        made = equation.reader.read(params["jaxpr"], [*fixed, *carry, *x])
        return tuple(made[:carries]), tuple(made[carries:])

    last, stacked = lax.scan(
        body, tuple(init), tuple(xs), length=params["length"], reverse=params["reverse"]
    )
    return [*last, *stacked]


@rule("while")
def _repeated(equation: Equation) -> Any:
    params, args = equation.params, equation.tracers
    asked, done = params["cond_nconsts"], params["body_nconsts"]
    first, second, init = args[:asked], args[asked : asked + done], args[asked + done :]

    def asks(carry: Sequence[Tracer]) -> Tracer:
        (told,) = equation.reader.read(params["cond_jaxpr"], [*first, *carry])
        return told

    def condition(carry: Sequence[Tracer]) -> Any:
        told = asks(carry)
        return lax.reduce_or(told, tuple(range(told.ndim))) if told.ndim else told

    def body(carry: Sequence[Tracer]) -> Any:
        made = equation.reader.read(params["body_jaxpr"], [*second, *carry])
        told = asks(carry) if batched else None
        return tuple(
            new if told is None or new.value is old.value else _where(told, new, old)
            for new, old in zip(made, carry, strict=True)
        )

    # A loop that JAX has mapped goes on while one of the batch does; the others stay as they are.
    batched = bool(params["cond_jaxpr"].out_avals[0].shape)

    return lax.while_loop(condition, body, tuple(init))


def _where(told: Tracer, new: Tracer, old: Tracer) -> Tracer:
    """Elements of `new` for those of the batch, the first dimensions, that go on."""
    wide = lax.broadcast_in_dim(told, new.shape, tuple(range(told.ndim)))
    chosen: Tracer = lax.select(wide, new, old)
    return chosen


@rule("cond")
def _chosen(equation: Equation) -> Any:
    index, *args = equation.tracers

    def branch(program: Any) -> Any:
        return lambda *given: tuple(equation.reader.read(program, given))

    return lax.switch(index, tuple(map(branch, equation.params["branches"])), *args)


@rule("platform_index")
def _platform(equation: Equation) -> Any:
    """Which of several programs is meant for this machine: that for processors, or the default."""
    platforms = equation.params["platforms"]
    for number, names in enumerate(platforms):
        if names is None or "cpu" in names:
            return constant(np.int32(number))
    raise equation.refuse(f"no program for cpu among {platforms}", "give it a default")


@rule("remat2")
def _checkpointed(equation: Equation) -> Any:
    """What JAX computes again in its gradients is computed again in ours.

    Where JAX has taken the gradient already, the program says itself what is computed twice.
    """
    params = equation.params

    def again(*args: Tracer) -> Any:
        return tuple(equation.reader.read_open(params["jaxpr"], (), args))

    if params["differentiated"]:
        kept = lax.optimization_barrier(tuple(equation.tracers))
        return again(*kept)
    return checkpoint(again, prevent_cse=bool(params["prevent_cse"]))(*equation.tracers)


@rule("name")
def _named(equation: Equation) -> Any:
    return checkpoint_name(equation.tracers[0], equation.params["name"])
