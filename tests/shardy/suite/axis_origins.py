"""The origins of axes, with Shardy's names of annotations.

`input: 0` and `output: 0` are arguments and results of the function, `constraint_0` constraints in
textual order, `mc_0_input: 0` the sharding that a manual computation states for its operand; `self`
is the annotation of the value itself.
"""

from shardir.ir.module import Function, Module, Value
from shardir.passes import Propagate
from shardir.passes.explain.propagation_history.axis_origins import origins_of
from shardir.passes.explain.propagation_history.history import FunctionHistory
from shardir.passes.propagation.record import StatedSharding

Origins = dict[str, set[str]]
"""Maps each axis of a value, in Shardy's notation, to the annotations it came from."""


class OriginReport:
    """The origins recorded by a run of propagation for one function."""

    def __init__(self, module: Module, propagate: Propagate, name: str) -> None:
        propagated, record = propagate.run_recorded(module)
        self.history = FunctionHistory(propagated, record.histories[name], {})
        self.function = next(f for f in module.functions if f.name == name)
        self.names = _names(self.function)

    def of_value(self, name: str) -> Origins:
        value = self.history.values.get(name)
        return {} if value is None else self.of(self.history.story.cells[value])

    def of_result(self, number: int) -> Origins:
        return self.of(-1 - number)

    def of(self, cell: int) -> Origins:
        sharding = self.history.final_shardings.get(cell)
        found: Origins = {}
        if sharding is None:
            return found
        sizes = self.history.mesh(sharding).sizes
        for dim, each in enumerate(sharding.dims):
            for axis in each.axes:
                whole = axis.pre == 1 and axis.size == sizes[axis.name]
                key = axis.name if whole else str(axis)
                stated = [way.origin for way in origins_of(self.history).paths(cell, dim, axis)]
                found[key] = {self.name(one, cell) for one in stated}
        return found

    def name(self, stated: StatedSharding, cell: int) -> str:
        """Return Shardy's name of an annotation, relative to the value at `cell`."""
        if stated.constraint is not None and stated.constraint.blocks:
            names = [value.name for value in stated.constraint.operands]
            spoken = stated.value.name if stated.value else ""
            param = stated.constraint.blocks[0].params[names.index(spoken)]
            return self.names[param.name]
        if stated.constraint is not None:
            return self.names.get(stated.constraint.result.name, "a constraint")
        if stated.cell == cell:
            return "self"
        if stated.cell < 0:
            return f"output: {-1 - stated.cell}"
        return self.names.get(stated.value.name, "a value") if stated.value else "a value"


def _names(function: Function) -> dict[str, str]:
    """Map the names of values to Shardy's names of their annotations."""
    names = {value.name: f"input: {i}" for i, value in enumerate(function.body.params)}
    constraints = computations = 0

    def number(values: tuple[Value, ...], word: str) -> None:
        for i, value in enumerate(values):
            names[value.name] = f"mc_{computations}_{word}: {i}"

    for op in function.body.walk():
        if op.name == "sharding_constraint":
            names[op.result.name] = f"constraint_{constraints}"
            constraints += 1
        elif op.name == "manual_computation":
            number(op.blocks[0].params, "input")
            number(op.results, "output")
            computations += 1
    return names
