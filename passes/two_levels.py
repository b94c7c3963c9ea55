"""Collectives in two levels: inside of processes, and between them.

before: `%g = all-reduce(%p, axes=[data], op=add)`, where two processes have four devices each
after:  `%g.near = all-reduce(%p, axes=[data:(2)4], op=add)`
        `%g = all-reduce(%g.near, axes=[data:(1)2], op=add)`

What devices of one process have for one another is a matter of memory; between processes one
message says it for all of them. A sum of floating-point numbers of which a process would receive
little is gathered and added up in the order of the devices, so that the same parts have a sum of
the same bits on any number of processes.
"""

from dataclasses import dataclass, replace

from shardir.build import Builder
from shardir.ir import Function, Module
from shardir.levels import Levels
from shardir.passes.levels.rules import RULES
from shardir.passes.levels.splitter import Splitter
from shardir.passes.merge_devices import mesh_of_devices
from shardir.passes.pipeline import Pass
from shardir.passes.program import names_of


@dataclass(frozen=True)
class TwoLevels(Pass, name="hierarchical-collectives"):
    """Split each collective into one inside of processes and one between them.

    `across` says into how many blocks each axis of the mesh is cut, with one block for each
    process: `data:2/model:1`. With `at`, the program is that of the process at this place,
    `data:1/model:0`, where its devices stand along the axes is known. Sums of floating-point
    numbers are added up in the order of the devices where a process receives at most `small`
    bytes for that.

    Raises `MergeError` where the blocks do not fit the parts of axes that a program uses.
    """

    across: str = ""
    at: str = ""
    small: int = 1 << 16

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(self._function(f, module) for f in module.functions))

    def _function(self, function: Function, module: Module) -> Function:
        if function.spmd is None:
            return function
        levels = Levels.parse(mesh_of_devices(function, module), self.across, self.at)
        splitter = Splitter(Builder(names_of(function)), levels, self.small, RULES)
        return replace(function, body=splitter.block(function.body))
