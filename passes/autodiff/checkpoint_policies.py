"""Checkpoint policies: which values a checkpoint saves.

A policy is a list of clauses, and a value is saved if any of them holds: `everything`, `dots`,
`dots-without-batch`, `named`, `name=a`, `named-but=a|b`, `anything`, `anything-but=a|b`, or the
name of a function of the user, which is called with the name of the operation, the types of its
operands and its attributes.
"""

from collections.abc import Sequence

from shardir import ops
from shardir.errors import DifferentiateError
from shardir.ir.host_function import host_function_of
from shardir.ir.module import Op

POLICY_CLAUSES = ("everything", "anything", "named", "dots", "dots-without-batch")


def saves_everything(save: Sequence[str]) -> bool:
    """Return whether the checkpoint has no effect because it saves everything."""
    return "everything" in save


def is_saved(save: Sequence[str], op: Op) -> bool:
    """Return whether the result of an operation is saved by the forward computation.

    Loops and branches themselves are not. Raises `DifferentiateError` for an unknown clause.
    """
    return not op.blocks and any(_is_satisfied(clause, op) for clause in save)


def _is_satisfied(clause: str, op: Op) -> bool:
    policy = host_function_of(clause)
    if policy is not None:
        return bool(policy(op.name, *(value.type for value in op.operands), **op.attrs))
    name = op.attrs["label"] if op.spec is ops.checkpoint_name else None
    kind, _, names = clause.partition("=")
    listed = names.split("|")
    if kind in ("everything", "anything"):
        return True
    if kind == "anything-but":
        return name not in listed
    if kind == "named":
        return name is not None
    if kind == "named-but":
        return name is not None and name not in listed
    if kind == "name":
        return name == names
    if kind == "dots":
        return op.spec in (ops.dot, ops.convolution)
    if kind == "dots-without-batch":
        return op.spec is ops.dot and not _has_batch(op)
    raise DifferentiateError(
        f"a checkpoint cannot save {clause!r}; it saves {', '.join(POLICY_CLAUSES)}, name=..., "
        "named-but=..., anything-but=..."
    )


def _has_batch(op: Op) -> bool:
    """Return whether a contraction has a dimension that occurs in both operands and the result."""
    rule = op.factors()
    if rule is None:
        return False
    walked = [{f for dim in tensor for f in dim} for tensor in rule.tensors]
    return bool(set.intersection(*walked))
