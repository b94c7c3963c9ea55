"""Split collectives hierarchically: within processes, then between processes.

before: `%g = all-reduce(%p, axes=[x], op=max)`, where two processes have two devices each
after:  `%g.within_process = all-reduce(%p, axes=[x:(2)2], op=max)`
        `%g = all-reduce(%g.within_process, axes=[x:(1)2], op=max)`

Devices of one process exchange data in memory; one message per process carries the data of all its
devices to other processes. A floating-point sum of which a process would receive few bytes is
gathered and added in device order, so that the result has the same bits for any number of
processes.
"""

from dataclasses import dataclass, replace

from shardir.ir.builder import Builder
from shardir.ir.module import Function, Module
from shardir.ir.process_levels import ProcessLevels
from shardir.passes.collectives.hierarchical_rules import HIERARCHICAL_RULES
from shardir.passes.collectives.hierarchical_splitter import CollectiveSplitter
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import used_names
from shardir.passes.whole_program.merge_devices import mesh_of_devices


@dataclass(frozen=True)
class HierarchicalCollectives(Pass, name="hierarchical-collectives"):
    """Split each collective into one within processes and one between processes.

    `across` states the number of blocks of each mesh axis, one block per process: `data:2/model:1`.
    `at` is the position of one process among the blocks, `data:1/model:0`; if it is given, the
    program is specialized for that process. Floating-point sums are added in device order where a
    process receives at most `small` bytes for that.

    Raises `MergeError` if the blocks do not fit the sub-axes that a program uses.
    """

    across: str = ""
    at: str = ""
    small: int = 1 << 16

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(self._function(f, module) for f in module.functions))

    def _function(self, function: Function, module: Module) -> Function:
        if function.spmd is None:
            return function
        levels = ProcessLevels.parse(mesh_of_devices(function, module), self.across, self.at)
        splitter = CollectiveSplitter(
            Builder(used_names(function)), levels, self.small, HIERARCHICAL_RULES
        )
        return replace(function, body=splitter.block(function.body))
