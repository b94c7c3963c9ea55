"""The arguments with respect to which a derivative is taken, and their leaves."""

from collections.abc import Sequence

from shardir.errors import DifferentiateError, count_noun
from shardir.frontend.argument_checks import as_items
from shardir.frontend.arrays.float0 import FLOAT0 as FLOAT0
from shardir.frontend.dispatch.traced_calls import is_array_like
from shardir.frontend.errors import ArgumentError, NotAnArrayError
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief, brief_with_type
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import operand_dtype
from shardir.frontend.tracing.parameters import ArgNums, Parameters
from shardir.ir.types import COMPLEX, INEXACT


def resolve_argnums(
    what: str, argnums: ArgNums, args: Sequence[PyTree], parameters: Parameters
) -> list[int]:
    """Return the positions of the selected arguments; raises `ArgumentError` for a missing one."""
    listed = as_items(argnums)
    numbers = []
    for number in listed:
        at = number + len(args) if isinstance(number, int) and number < 0 else number
        if not isinstance(at, int) or not 0 <= at < len(args):
            raise ArgumentError(
                with_location(
                    f"{what} of {parameters.name} is taken with respect to argument "
                    f"{brief(number)}, and it was called with "
                    f"{count_noun(len(args), 'positional argument')}; "
                    "change argnums, or pass the argument by position"
                )
            )
        numbers.append(at)
    return numbers


def active_leaves(
    what: str,
    leaves: Sequence[object],
    labels: Sequence[str],
    name: str,
    holomorphic: bool,
    allow_int: bool,
) -> list[int]:
    """Return the differentiable leaves; raises an error for leaves that are not allowed."""
    active = []
    for i, (leaf, label) in enumerate(zip(leaves, labels, strict=True)):
        if not is_array_like(leaf):
            raise NotAnArrayError(
                with_location(
                    f"{what} of {name} is taken with respect to {label}, which is "
                    f"{brief_with_type(leaf)} and not an array; omit it from argnums"
                )
            )
        dtype, _ = operand_dtype(leaf)
        if dtype in INEXACT and (dtype in COMPLEX or not holomorphic):
            active.append(i)
        elif holomorphic:
            raise DifferentiateError(
                with_location(
                    f"{label} of {name} is {dtype}; a holomorphic gradient needs complex inputs"
                )
            )
        elif not allow_int:
            ways = "choose others with argnums"
            ways += ", or set allow_int=True" if what == "grad" else ""
            raise DifferentiateError(
                with_location(
                    f"{what} of {name} is taken with respect to {label}, which is {dtype}; "
                    "gradients need floating-point inputs: convert it (1.0 for 1, "
                    f"x.astype(float)), {ways}"
                )
            )
    return active
