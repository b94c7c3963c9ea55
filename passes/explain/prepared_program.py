"""The functions of a program in their state before propagation, for several runs without a record.

The order of the worklist and single annotations are tried by further runs of propagation. These
begin with the same networks, so each function is prepared once for all of them.
"""

from functools import cache

from shardir.ir.module import Function, Module
from shardir.op_rules.custom_rules import rules_in_force
from shardir.passes.propagation.propagate import PreparedFunction, Propagate, initial_state
from shardir.passes.propagation.propagation_levels import PropagationState
from shardir.passes.propagation.propagation_network import StepperTable
from shardir.passes.propagation.step import ShardingTable


class PreparedProgram:
    """A program whose functions are prepared when they are first used.

    `propagate` states how functions are prepared; its other options do not matter.
    """

    def __init__(self, module: Module, propagate: Propagate) -> None:
        self._rules = rules_in_force()
        self._propagate = propagate
        self.module = self._rules.bind(module)
        self.steppers = StepperTable(ShardingTable(self.module), explain=False)
        self.function = cache(self._prepare)

    @property
    def shardings(self) -> ShardingTable:
        """The shardings that the states of functions refer to."""
        return self.steppers.shardings

    def source(self, name: str) -> Function:
        """Return a function of the module."""
        return next(function for function in self.module.functions if function.name == name)

    def _prepare(self, name: str) -> PreparedFunction:
        """Return a function in its state before propagation."""
        return self._propagate.prepare_function(self.source(name), self.steppers, self._rules)

    def initial_state(self, name: str) -> PropagationState:
        """Return the shardings of a function before propagation."""
        prepared = self.function(name)
        return initial_state(
            self.source(name), prepared.network, prepared.stated, self.shardings,
            units=not self._propagate.prepare,
        )  # fmt: skip

    def final_state(self, name: str, propagate: Propagate) -> PropagationState:
        """Return the shardings of a function after propagation with other options."""
        state = self.initial_state(name)
        propagate.start_run(self.function(name), self.steppers).run(state)
        return state
