"""Map the collectives of a per-device program to operations of the program over whole arrays.

`merge-devices` names the collective in the `why` of each operation that it makes of one, and later
passes keep these texts when they fold or fuse operations. A collective that no operation names any
more moved no data: it is a view.
"""

from shardir import ops
from shardir.ir.module import Module
from shardir.passes.whole_program.collective_rules import collective_title
from shardir.passes.whole_program.merge_devices import mesh_of_devices


def map_collectives_to_operations(program: Module, one: Module) -> dict[str, tuple[str, ...]]:
    """Return the operations of `one` that each collective of `program` became.

    Keys name the collectives of the first function, such as `all-gather %h along data`. A
    collective that is only a view has no operations.
    """
    mesh = mesh_of_devices(program.main, program)
    collectives = (op for op in program.main.body.walk() if op.spec.collective)
    result: dict[str, tuple[str, ...]] = {collective_title(op, mesh): () for op in collectives}
    for op in one.main.body.walk():
        for name in result:
            if name in op.why and op.spec not in _VIEW_OPERATIONS:
                result[name] = (*result[name], f"%{op.results[0].name} = {op.name}")
    return result


_VIEW_OPERATIONS = (ops.reshape, ops.transpose, ops.broadcast, ops.constant)
