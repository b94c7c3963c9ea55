"""Gradient checkpointing (rematerialization): `checkpoint` and its policies."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from shardir.frontend import tree
from shardir.frontend.amounts import flag_of
from shardir.frontend.calling import is_array_like, returned
from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.jit import jit
from shardir.frontend.lax.blocks import several, with_kinds
from shardir.frontend.locations import point
from shardir.frontend.operands import as_tracer
from shardir.frontend.parameters import Parameters, called, labels_of, name_of
from shardir.frontend.quoting import brief
from shardir.frontend.trace import current, emit, trace_block
from shardir.frontend.tracer import Tracer
from shardir.hosted import Hosted


@dataclass(frozen=True)
class Policy:
    """The clauses of a checkpoint policy; see `shardir.passes.policies`."""

    save: tuple[str, ...]


def _names(kind: str, names: tuple[str, ...]) -> Policy:
    for name in names:
        if not isinstance(name, str) or "|" in name:
            raise ArgumentError(
                point(f"the name of a checkpointed value is a string without |, got {name!r}")
            )
    return Policy((f"{kind}={'|'.join(names)}",))


class CheckpointPolicies:
    """Policies that select the values that a checkpoint saves instead of recomputing them."""

    everything_saveable = Policy(("everything",))
    nothing_saveable = Policy(())
    dots_saveable = Policy(("dots",))
    checkpoint_dots = dots_saveable
    dots_with_no_batch_dims_saveable = Policy(("dots-without-batch",))
    checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable

    @staticmethod
    def save_only_these_names(*names: str) -> Policy:
        """Save only values with these names, which `checkpoint_name` assigns."""
        return Policy(tuple(clause for name in names for clause in _names("name", (name,)).save))

    @staticmethod
    def save_any_names_but_these(*names: str) -> Policy:
        """Save values to which `checkpoint_name` assigned any other name."""
        return _names("named-but", names)

    @staticmethod
    def save_anything_except_these_names(*names: str) -> Policy:
        """Save all values except those to which `checkpoint_name` assigned these names."""
        return _names("anything-but", names)

    @staticmethod
    def save_from_both_policies(first: Policy, second: Policy) -> Policy:
        """Save the values that either policy saves."""
        return Policy(tuple(dict.fromkeys((*_clauses(first), *_clauses(second)))))


checkpoint_policies = CheckpointPolicies


@dataclass(frozen=True)
class Asked:
    """Calls a policy function of the user."""

    policy: Callable[..., Any]

    def __call__(self, name: str, *types: Any, **attrs: Any) -> bool:
        found = called(self.policy, "the policy of checkpoint", (name, *types), attrs)
        return flag_of("what the policy of checkpoint returns", found)


def _clauses(policy: Any) -> tuple[str, ...]:
    if policy is None:
        return ()
    if isinstance(policy, Policy):
        return policy.save
    if callable(policy):
        return (Hosted(name_of(policy), Asked(policy)),)
    raise ArgumentError(
        point(
            f"policy of checkpoint is {policy!r}; use one of checkpoint_policies, or a function of "
            "the name of an operation, the types of its operands and its attributes"
        )
    )


def checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    concrete: bool = False,
    policy: Any = None,
    prevent_cse: bool = True,
    static_argnums: Any = (),
) -> Callable[..., Any]:
    """Return `fun` with a gradient that saves only the arguments and recomputes other residuals.

    `policy`, one of `checkpoint_policies`, selects values to save in addition. Arguments in
    `static_argnums` need not be arrays. `prevent_cse=False` allows common subexpression elimination
    between the original and the recomputed operations. `concrete` must be false. May be used as a
    decorator, with options or without. Outside of any trace it is `jit(fun)`.
    """
    if flag_of("concrete of checkpoint", concrete):
        raise ArgumentError(
            point("checkpoint has no option concrete=True; name such arguments in static_argnums")
        )
    clauses = _clauses(policy)
    if fun is None:

        def decorate(fun: Callable[..., Any]) -> Callable[..., Any]:
            return checkpoint(
                fun, policy=policy, prevent_cse=prevent_cse, static_argnums=static_argnums
            )

        return decorate
    if not callable(fun):
        raise ArgumentError(point(f"checkpoint takes a function, got {brief(fun)}"))
    known = Parameters.of(fun, static_argnums)
    alone = jit(fun, static_argnums=static_argnums)
    attrs: dict[str, Any] = {"save": clauses} if clauses else {}
    if not flag_of("prevent_cse of checkpoint", prevent_cse):
        attrs["barrier"] = False

    @wraps(fun)
    def wrapper(*args: Any, **options: Any) -> Any:
        if current() is None:
            return alone(*args, **options)
        return _traced(fun, known, attrs, args, options)

    return wrapper


remat = checkpoint


def _traced(
    fun: Callable[..., Any],
    known: Parameters,
    attrs: dict[str, Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
) -> Any:
    dynamic = tuple(arg for i, arg in enumerate(args) if i not in known.static)
    leaves, structure = tree.flatten((dynamic, options))
    labels = [
        *(
            label
            for i, arg in enumerate(args)
            if i not in known.static
            for label in labels_of(known.label(i), arg)
        ),
        *(label for key in sorted(options) for label in labels_of(key, options[key])),
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
        out, results = tree.flatten(called(fun, known.name, whole, named))
        found.append(results)
        return [returned(x, i, results, known.name) for i, x in enumerate(out)]

    tracers = [as_tracer(leaves[i]) for i in chosen]
    abstracts = [tracer.abstract for tracer in tracers]
    names = [labels[i] for i in chosen]
    block, results = trace_block(flat, abstracts, known.name, names, tracers)
    made = emit("checkpoint", *tracers, blocks=(block,), **attrs)
    weak = [abstract.weak for abstract in results]
    return tree.unflatten(found[-1], with_kinds(several(made), weak))


def checkpoint_name(x: Any, name: str) -> Any:
    """Return `x`, a pytree of arrays, under a name by which a checkpoint policy may save it."""
    if not isinstance(name, str):
        raise ArgumentError(point(f"the name of a checkpointed value is a string, got {name!r}"))
    return _named(x, name)


@public(static=("name",), name="checkpoint_name")
def _named(x: Any, name: str) -> Any:
    def each(leaf: Any) -> Tracer:
        tracer = as_tracer(leaf)
        made: Tracer = emit("checkpoint-name", tracer, weak=tracer.weak_type, label=name)
        return made

    return tree.map(each, x)
