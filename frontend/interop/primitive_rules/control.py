"""Rules of primitives with inner jaxprs: calls, loops, branches, rematerialization."""

from collections.abc import Callable, Sequence

import numpy as np
from jax.extend import core

from shardir.frontend.interop.jax_shardings import constrain_as_jax
from shardir.frontend.interop.primitive_rules.registry import Equation, RuleResult, register_rule
from shardir.frontend.lax import data_movement, elementwise, reductions
from shardir.frontend.lax.control_flow import branches, loops
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.tracing.operands import constant
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.rematerialization import checkpoint, checkpoint_name


@register_rule("jit")
def _apply_jit(equation: Equation) -> RuleResult:
    """Inline a jitted function into the surrounding program, with its sharding constraints."""
    params = equation.params
    ins = params.get("in_shardings") or (None,) * len(equation.operands)
    args = [
        x if sharding is None or not isinstance(x, Tracer) else constrain_as_jax(x, sharding)
        for x, sharding in zip(equation.operands, ins, strict=True)
    ]
    results = equation.reader.read(params["jaxpr"], args)
    outs = params.get("out_shardings") or (None,) * len(results)
    return [constrain_as_jax(x, sharding) for x, sharding in zip(results, outs, strict=True)]


def _apply_call(equation: Equation) -> list[Tracer]:
    params = equation.params
    program = next(params[key] for key in ("call_jaxpr", "call", "jaxpr") if key in params)
    if hasattr(program, "consts"):
        return equation.reader.read(program, equation.operands)
    return equation.reader.read_open(program, (), equation.operands)


for _name in (
    "call", "closed_call", "composite", "compute_on", "custom_partitioning", "custom_vmap_call",
    "fused_call",
):  # fmt: skip
    register_rule(_name)(_apply_call)


@register_rule("scan")
def _apply_scan(equation: Equation) -> RuleResult:
    params = equation.params
    args, consts, carries = equation.tracers, params["num_consts"], params["num_carry"]
    fixed, init, xs = args[:consts], args[consts : consts + carries], args[consts + carries :]

    def body(
        carry: Sequence[Tracer], x: Sequence[Tracer]
    ) -> tuple[tuple[Tracer, ...], tuple[Tracer, ...]]:
        results = equation.reader.read(params["jaxpr"], [*fixed, *carry, *x])
        return tuple(results[:carries]), tuple(results[carries:])

    last, stacked = loops.scan(
        body, tuple(init), tuple(xs), length=params["length"], reverse=params["reverse"]
    )
    return [*last, *stacked]


@register_rule("while")
def _apply_while(equation: Equation) -> PyTree:
    params, args = equation.params, equation.tracers
    cond_consts, body_consts = params["cond_nconsts"], params["body_nconsts"]
    cond_args, body_args, init = (
        args[:cond_consts],
        args[cond_consts : cond_consts + body_consts],
        args[cond_consts + body_consts :],
    )

    def evaluate_condition(carry: Sequence[Tracer]) -> Tracer:
        (is_running,) = equation.reader.read(params["cond_jaxpr"], [*cond_args, *carry])
        return is_running

    def condition(carry: Sequence[Tracer]) -> Tracer:
        is_running = evaluate_condition(carry)
        return (
            reductions.reduce_or(is_running, tuple(range(is_running.ndim)))
            if is_running.ndim
            else is_running
        )

    def body(carry: Sequence[Tracer]) -> tuple[Tracer, ...]:
        results = equation.reader.read(params["body_jaxpr"], [*body_args, *carry])
        is_running = evaluate_condition(carry) if batched else None
        return tuple(
            new
            if is_running is None or new.value is old.value
            else _select_running(is_running, new, old)
            for new, old in zip(results, carry, strict=True)
        )

    # A loop that JAX batched runs while one element of the batch continues; the others are kept.
    batched = bool(params["cond_jaxpr"].out_avals[0].shape)

    return loops.while_loop(condition, body, tuple(init))


def _select_running(is_running: Tracer, new: Tracer, old: Tracer) -> Tracer:
    """Select `new` for the elements of the batch (the first dimensions) that continue."""
    mask = data_movement.broadcast_in_dim(is_running, new.shape, tuple(range(is_running.ndim)))
    result: Tracer = elementwise.select(mask, new, old)
    return result


@register_rule("cond")
def _apply_cond(equation: Equation) -> PyTree:
    index, *args = equation.tracers

    def branch(program: core.ClosedJaxpr) -> Callable[..., tuple[Tracer, ...]]:
        return lambda *given: tuple(equation.reader.read(program, given))

    return branches.switch(index, tuple(map(branch, equation.params["branches"])), *args)


@register_rule("platform_index")
def _apply_platform_index(equation: Equation) -> Tracer:
    """Return the index of the program for CPUs, or of the default program."""
    platforms = equation.params["platforms"]
    for number, names in enumerate(platforms):
        if names is None or "cpu" in names:
            return constant(np.int32(number))
    raise equation.unsupported_form_error(
        f"no program for cpu among {platforms}", "give it a default"
    )


@register_rule("remat2")
def _apply_remat(equation: Equation) -> PyTree:
    """Rematerialize in gradients whatever JAX rematerializes.

    If JAX has differentiated the program already, the program itself contains the recomputation.
    """
    params = equation.params

    def run(*args: Tracer) -> tuple[Tracer, ...]:
        return tuple(equation.reader.read_open(params["jaxpr"], (), args))

    if params["differentiated"]:
        barrier_results = data_movement.optimization_barrier(tuple(equation.tracers))
        return run(*barrier_results)
    return checkpoint(run, prevent_cse=bool(params["prevent_cse"]))(*equation.tracers)


@register_rule("name")
def _apply_name(equation: Equation) -> PyTree:
    return checkpoint_name(equation.tracers[0], equation.params["name"])
