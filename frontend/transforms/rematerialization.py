"""Gradient checkpointing (rematerialization): `checkpoint` and its policies."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardir.frontend.argument_checks import check_flag
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.call_signatures import call_user_function, with_method_errors
from shardir.frontend.dispatch.eager import public
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.dispatch.traced_calls import is_array_like, result_tracer
from shardir.frontend.errors import ArgumentError, ShardingError
from shardir.frontend.lax.control_flow.body_tracing import set_weak_types
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.function_tracing import trace_block
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.parameters import Parameters, function_name, leaf_labels, sort_names
from shardir.frontend.tracing.trace import current_trace, emit, emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.wrappers import wraps
from shardir.ir.host_function import HostFunction
from shardir.ir.operation import Attr
from shardir.ir.types import TensorType


@dataclass(frozen=True)
class CheckpointPolicy:
    """The clauses of a checkpoint policy; see `shardir.passes.autodiff.checkpoint_policies`."""

    save: tuple[str, ...]


def _named_policy(kind: str, names: tuple[str, ...]) -> CheckpointPolicy:
    for name in names:
        if not isinstance(name, str) or "|" in name:
            raise ArgumentError(
                with_location(
                    f"the name of a checkpointed value is a string without |, got {name!r}"
                )
            )
    return CheckpointPolicy((f"{kind}={'|'.join(names)}",))


def _offload_error(name: str, kind: str, other: str) -> ShardingError:
    return ShardingError(
        with_location(
            f"checkpoint_policies.{name} moves saved values to the memory kind {brief(kind)}, "
            "which is not supported: arrays are in the memory of their devices; "
            f"{other} saves them there"
        )
    )


@with_method_errors
class CheckpointPolicies:
    """Policies that select the values that a checkpoint saves instead of recomputing them."""

    everything_saveable = CheckpointPolicy(("everything",))
    """Save every value."""
    nothing_saveable = CheckpointPolicy(())
    """Save no value: recompute all of them."""
    dots_saveable = CheckpointPolicy(("dots",))
    """Save the results of matrix products."""
    checkpoint_dots = dots_saveable
    """The same policy as `dots_saveable`."""
    dots_with_no_batch_dims_saveable = CheckpointPolicy(("dots-without-batch",))
    """Save the results of matrix products without batch dimensions."""
    checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable
    """The same policy as `dots_with_no_batch_dims_saveable`."""

    @staticmethod
    def save_only_these_names(*names: str) -> CheckpointPolicy:
        """Save only values with these names, which `checkpoint_name` assigns."""
        return CheckpointPolicy(
            tuple(clause for name in names for clause in _named_policy("name", (name,)).save)
        )

    @staticmethod
    def save_any_names_but_these(*names: str) -> CheckpointPolicy:
        """Save values to which `checkpoint_name` assigned any other name."""
        return _named_policy("named-but", names)

    @staticmethod
    def save_anything_except_these_names(*names: str) -> CheckpointPolicy:
        """Save all values except those to which `checkpoint_name` assigned these names."""
        return _named_policy("anything-but", names)

    @staticmethod
    def save_and_offload_only_these_names(
        *,
        names_which_can_be_saved: Sequence[str],
        names_which_can_be_offloaded: Sequence[str],
        offload_src: str,
        offload_dst: str,
    ) -> CheckpointPolicy:
        """Save only values with the first names; raise `ShardingError` for names to offload."""
        if names_which_can_be_offloaded:
            raise _offload_error(
                "save_and_offload_only_these_names", offload_dst, "save_only_these_names"
            )
        return CheckpointPolicies.save_only_these_names(*names_which_can_be_saved)

    @staticmethod
    def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> CheckpointPolicy:
        """Raise `ShardingError`: saved values are in the memory of their devices."""
        raise _offload_error(
            "offload_dot_with_no_batch_dims", offload_dst, "dots_with_no_batch_dims_saveable"
        )

    @staticmethod
    def save_from_both_policies(
        first: CheckpointPolicy, second: CheckpointPolicy
    ) -> CheckpointPolicy:
        """Save the values that either policy saves."""
        return CheckpointPolicy(
            tuple(dict.fromkeys((*_policy_clauses(first), *_policy_clauses(second))))
        )


checkpoint_policies = CheckpointPolicies


@dataclass(frozen=True)
class UserPolicy:
    """Calls a policy function of the user."""

    policy: UserFunction

    def __call__(self, name: str, *types: TensorType, **attrs: Attr) -> bool:
        # An attribute may have the name of a positional parameter, such as `op`.
        positional = Parameters.of(self.policy).names[: 1 + len(types)]
        named = {key: value for key, value in attrs.items() if key not in positional}
        found = call_user_function(self.policy, "the policy of checkpoint", (name, *types), named)
        return check_flag("what the policy of checkpoint returns", found)


def _policy_clauses(policy: object) -> tuple[str, ...]:
    if policy is None:
        return ()
    if isinstance(policy, CheckpointPolicy):
        return policy.save
    if callable(policy):
        return (HostFunction(function_name(policy), UserPolicy(policy)),)
    raise ArgumentError(
        with_location(
            f"policy of checkpoint is {policy!r}; use one of checkpoint_policies, or a function of "
            "the name of an operation, the types of its operands and its attributes"
        )
    )


@traceback_boundary
def checkpoint(
    fun: UserFunction | None = None,
    *,
    concrete: bool = False,
    policy: object = None,
    prevent_cse: bool = True,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> UserFunction:
    """Return `fun` with a gradient that saves only the arguments and recomputes other residuals.

    `policy`, one of `checkpoint_policies`, selects values to save in addition, also inside of
    `scan`, `cond` and `switch`. Arguments in `static_argnums`, and those given by a name in
    `static_argnames`, may be any objects.
    `prevent_cse=False` allows common subexpression elimination between the original and the
    recomputed operations. `concrete` must be false. May be used as a decorator, with options or
    without. Outside of any trace it is `jit(fun)`.
    """
    if check_flag("concrete of checkpoint", concrete):
        raise ArgumentError(
            with_location(
                "checkpoint has no option concrete=True; name such arguments in static_argnums"
            )
        )
    clauses = _policy_clauses(policy)
    if fun is None:

        def decorate(fun: UserFunction) -> UserFunction:
            return checkpoint(
                fun,
                policy=policy,
                prevent_cse=prevent_cse,
                static_argnums=static_argnums,
                static_argnames=static_argnames,
            )

        return decorate
    if not callable(fun):
        raise ArgumentError(with_location(f"checkpoint takes a function, got {brief(fun)}"))
    known = Parameters.of(fun, static_argnums, static_argnames)
    alone = jit(fun, static_argnums=static_argnums, static_argnames=static_argnames)
    attrs: dict[str, Attr] = {"save": clauses} if clauses else {}
    if not check_flag("prevent_cse of checkpoint", prevent_cse):
        attrs["barrier"] = False

    @traceback_boundary
    @wraps(fun)
    def wrapper(*args: PyTree, **options: PyTree) -> PyTree:
        if current_trace() is None:
            return _call_outside_of_trace(fun, alone, known, args, options)
        return _trace_checkpoint(fun, known, attrs, args, options)

    return wrapper


remat = checkpoint


def _call_outside_of_trace(
    fun: UserFunction,
    compiled: UserFunction,
    known: Parameters,
    args: tuple[PyTree, ...],
    options: dict[str, PyTree],
) -> PyTree:
    """Call `compiled`, the jitted function, or compile it for static arguments without a hash."""
    numbers = known.for_call(len(args)).static
    static, traced = _split_options(known, options)
    chosen = [*(arg for i, arg in enumerate(args) if i in numbers), *static.values()]
    if all(map(_is_hashable, chosen)):
        return compiled(*args, **options)

    def with_static(*dynamic: PyTree, **options: PyTree) -> PyTree:
        given = iter(dynamic)
        whole = [arg if i in numbers else next(given) for i, arg in enumerate(args)]
        return call_user_function(fun, known.name, whole, sort_names({**options, **static}))

    with_static.__name__ = known.name
    return jit(with_static)(*(arg for i, arg in enumerate(args) if i not in numbers), **traced)


def _split_options(
    known: Parameters, options: dict[str, PyTree]
) -> tuple[dict[str, PyTree], dict[str, PyTree]]:
    """Return the static keyword arguments, and the others."""
    static = {key: value for key, value in options.items() if key in known.static_names}
    return static, {key: value for key, value in options.items() if key not in static}


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _trace_checkpoint(
    fun: UserFunction,
    known: Parameters,
    attrs: dict[str, Attr],
    args: tuple[PyTree, ...],
    options: dict[str, PyTree],
) -> PyTree:
    known = known.for_call(len(args))
    static, options = _split_options(known, options)
    dynamic = tuple(arg for i, arg in enumerate(args) if i not in known.static)
    leaves, structure = tree.flatten((dynamic, options))
    labels = [
        *(
            label
            for i, arg in enumerate(args)
            if i not in known.static
            for label in leaf_labels(known.label(i), arg)
        ),
        *(label for key in sorted(options) for label in leaf_labels(key, options[key])),
    ]
    chosen = [i for i, leaf in enumerate(leaves) if is_array_like(leaf)]
    found: list[tree.PyTreeDef] = []

    def flat(*inner: Tracer) -> list[Tracer]:
        filled = list(leaves)
        for i, tracer in zip(chosen, inner, strict=True):
            filled[i] = tracer
        moving, named = tree.unflatten(structure, filled)
        given = iter(moving)
        whole = [arg if i in known.static else next(given) for i, arg in enumerate(args)]
        filled_options = sort_names({**named, **static})
        out, results = tree.flatten(call_user_function(fun, known.name, whole, filled_options))
        found.append(results)
        return [result_tracer(x, i, results, known.name) for i, x in enumerate(out)]

    tracers = [as_tracer(leaves[i]) for i in chosen]
    abstracts = [tracer.abstract for tracer in tracers]
    names = [labels[i] for i in chosen]
    block, results = trace_block(flat, abstracts, known.name, names, tracers)
    result = emit_results("checkpoint", *tracers, blocks=(block,), **attrs)
    weak = [abstract.weak for abstract in results]
    return tree.unflatten(found[-1], set_weak_types(result, weak))


@with_argument_errors
def checkpoint_name(x: object, name: str) -> PyTree:
    """Return `x`, a pytree of arrays, under a name by which a checkpoint policy may save it."""
    if not isinstance(name, str):
        raise ArgumentError(
            with_location(f"the name of a checkpointed value is a string, got {name!r}")
        )
    return _name_values(x, name)


@public(static=("name",), name="checkpoint_name")
def _name_values(x: object, name: str) -> PyTree:
    def each(leaf: object) -> Tracer:
        tracer = as_tracer(leaf)
        result: Tracer = emit("checkpoint-name", tracer, weak=tracer.weak_type, label=name)
        return result

    return tree.map(each, x)
