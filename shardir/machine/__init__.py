"""Machine descriptions: how long computations and collectives take on a described machine.

Input: a description file (`descriptions/*.toml`, or a path) and the sizes of mesh axes. Output: a
`Machine`, whose methods return seconds. `description_files` finds a description, and
`description_parser` checks it; `placement` assigns mesh axes to links, `collective_time` has the
model of collectives, and `kernel_time` that of kernels of measured operations. `alpha_beta`,
`step_fit` and `measurements` fit numbers to measurements. Start with `machine`.
"""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.errors": ("MachineError",),
    "shardir.machine.description": ("MachineDescription",),
    "shardir.machine.description_files": ("list_descriptions",),
    "shardir.machine.machine": ("Machine", "load_machine"),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.errors import MachineError as MachineError
    from shardir.machine.description import MachineDescription as MachineDescription
    from shardir.machine.description_files import list_descriptions as list_descriptions
    from shardir.machine.machine import Machine as Machine, load_machine as load_machine
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
