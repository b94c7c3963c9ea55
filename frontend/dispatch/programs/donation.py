"""Runs of programs with donated arguments, which are deleted afterwards."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from shardir.errors import ShardirError
from shardir.frontend.arrays.array import Array
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.shardings.devices import Device
from shardir.frontend.source_locations import user_position
from shardir.ir.module import Function
from shardir.ir.types import TensorType


def reusable_parameters(
    numbers: Sequence[int], function: Function, results: Sequence[TensorType]
) -> tuple[int, ...]:
    """Return the parameters of a program among the indices `numbers` whose memory a result can
    reuse.

    A result reuses the memory of one parameter of its type. A parameter that the program does not
    use is not passed to it. As in JAX, the caller keeps arguments that cannot be reused.
    """
    body = function.body
    used = {*body.returns, *(value for op in body.ops for value in op.uses())}
    left = Counter(results)
    chosen = []
    for number in dict.fromkeys(numbers):
        param = body.params[number]
        if param in used and left[param.type]:
            left[param.type] -= 1
            chosen.append(number)
    return tuple(chosen)


Results = TypeVar("Results")


def is_consumed(leaf: object, devices: tuple[Device, ...]) -> bool:
    """Return whether a program on these devices uses the memory of a donated argument itself.

    An argument that is moved, sharded or converted is copied, and the copy is consumed instead.
    """
    return type(leaf) is Array and leaf.sharding.device_assignment == devices


def run_with_donation(
    run: Callable[[list[PyTree]], Results],
    leaves: list[PyTree],
    donated: Sequence[int],
    name: str,
    devices: tuple[Device, ...],
) -> Results:
    """Run the function `name` on `devices` and return the results of `run`.

    Afterwards the donated arguments that were consumed are deleted; see `is_consumed`.
    """
    gone, kept = [], []
    for i in donated:
        if is_consumed(leaves[i], devices):
            gone.append(leaves[i])
        elif type(leaves[i]) is Array:
            # Another reference to its memory prevents the program from reusing it.
            kept.append(leaves[i].buffers)
    try:
        made = run(leaves)
    except BaseException as error:
        # After Ctrl-C, for example, donated memory may hold results. Most errors of this package
        # are raised before the program starts.
        if not isinstance(error, ShardirError) or error.has_started:
            _delete_donated(gone, name)
        raise
    finally:
        kept.clear()
    if made is not None:
        _delete_donated(gone, name)
    return made


def _delete_donated(leaves: Sequence[Array], name: str) -> None:
    place = user_position() if leaves else None
    where = f" at {place.site.loc}" if place else ""
    reason = f"has been donated to {name}{where}; use the result of that call, or donate a copy"
    for leaf in leaves:
        leaf.release(reason)
