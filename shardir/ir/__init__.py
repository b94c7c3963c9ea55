"""The intermediate representation: frozen modules, functions, blocks, operations and values (SSA),
tensor types, meshes and shardings. Input: operations from `shardir.ops`, built by the tracer or the
parser. Output: modules that passes transform. Start with `module` (values to modules), then
`operation` (OpSpec, the declaration of an operation) and `sharding`. `attributes` and `rules` are
the types of declarations, `builder` constructs blocks, `signature` derives operand and attribute
checks from type rules, `equality` compares modules, `sub_axes`, `device_groups` and
`process_levels` are the algebra of mesh axes, `cached_hash` stores the hashes of records.
"""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {"shardir.ir.module": ("Block", "Function", "Loc", "Module", "Op", "Value")}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.ir.module import (
        Block as Block,
        Function as Function,
        Loc as Loc,
        Module as Module,
        Op as Op,
        Value as Value,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
