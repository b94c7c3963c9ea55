"""What the collectives of a per-device program are in the program over whole arrays.

`merge-devices` lets each operation that it makes of a collective say so in its `why`, and what is
folded or fused with it keeps the words. A collective that nothing speaks of any more moved no
numbers: it is a view.
"""

from shardir.ir import Module
from shardir.passes.merge_devices import mesh_of_devices
from shardir.passes.merging.collectives import title


def became(program: Module, one: Module) -> dict[str, tuple[str, ...]]:
    """For each collective of the first function of `program`, such as `all-gather %h along data`,
    the operations of `one` that it is part of: none for a view.
    """
    mesh = mesh_of_devices(program.main, program)
    collectives = (op for op in program.main.body.walk() if op.spec.collective)
    found: dict[str, tuple[str, ...]] = {title(op, mesh): () for op in collectives}
    for op in one.main.body.walk():
        for name in found:
            if name in op.why and op.name not in _VIEWS:
                found[name] = (*found[name], f"%{op.results[0].name} = {op.name}")
    return found


_VIEWS = ("reshape", "transpose", "broadcast", "constant")
