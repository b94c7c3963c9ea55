"""Fold repeated layers: a program with fewer layers of the same structure.

Unrolled layers are runs of the operations of a function: the same sequence of operations again and
again, once in the forward computation, once in the gradient in the opposite order, and once in the
update of each layer. A folded program has the first repetitions of each run. What used a value of a
removed repetition uses the value of a kept one that has the same distance from the end of the run,
so that the gradient of the last layer still follows the output of the last layer. What the last
removed repetition returns becomes what enters the run. A program that returns the output of the
last layer returns that of the last kept one.

`fold_layers` returns `None` for a program whose layers are not of this form.
"""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardir.ir.builder import substitute
from shardir.ir.module import Block, Function, Module, Op, Value

MAX_PERIOD = 4000
"""The number of operations of the longest repetition that is looked for."""
MAX_BOUNDARY_LAYERS = 2
"""The number of layers that may differ from the others, such as the first and the last one."""

_LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")


@dataclass(frozen=True, slots=True)
class _Run:
    start: int
    period: int
    count: int


@dataclass(frozen=True, slots=True)
class FoldedProgram:
    """A program with fewer layers.

    `arguments` has for each of its arguments the number of the argument of the unfolded program
    that has its role. `repeated` are the names of the arguments and values of layers.
    """

    module: Module
    arguments: tuple[int, ...]
    repeated: frozenset[str]


def layer_of(name: str) -> int | None:
    """Return the number of the layer in the name of an argument, or `None`."""
    found = _LAYER.search(name)
    return None if found is None else int(found[0])


def rename_layer(name: str, layer: int) -> str:
    """Return the name of an argument with another number of its layer."""
    return _LAYER.sub(str(layer), name, count=1)


def count_layers(params: Sequence[Value]) -> int:
    """Return the number of layers of a program: the largest number of arguments whose names differ
    in the number of a layer only."""
    members: dict[object, set[int]] = {}
    for value in params:
        layer = layer_of(value.name)
        if layer is not None:
            name = _LAYER.sub("#", value.name, count=1)
            members.setdefault((name, value.type), set()).add(layer)
    return max((len(each) for each in members.values()), default=0)


class LayerFolder:
    """Folds the layers of one program to several numbers of layers."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.body = module.main.body
        self.layers = count_layers(self.body.params)
        self.runs = _find_runs(self.body, self.layers)

    def fold(self, kept: int) -> FoldedProgram | None:
        """Return the program with `kept` layers, or `None` if it cannot be folded so."""
        removed = self.layers - kept
        if removed < kept:
            return None
        new: dict[Value, Value] = {}
        ops: list[Op] = []
        dropped: set[Value] = set()
        repeated: set[Value] = set()
        params: list[tuple[int, Value]] = []
        by_name = {value.name: value for value in self.body.params}
        for number, value in enumerate(self.body.params):
            layer = layer_of(value.name)
            if layer is None or layer < kept:
                params.append((number, value))
                if layer is not None:
                    repeated.add(value)
                continue
            twin = None
            if layer >= removed:
                twin = by_name.get(rename_layer(value.name, layer - removed))
                if twin is None or twin.type != value.type:
                    return None
                new[value] = twin
        place = self._places()
        for position, op in enumerate(self.body.ops):
            run, repetition = place[position]
            if run is not None:
                left = run.count - removed
                if left < 0:
                    return None
                if repetition >= removed:
                    source = self.body.ops[position - removed * run.period]
                    new.update(zip(op.results, source.results, strict=True))
                    # What the last removed repetition returns to a kept one enters the first one.
                    for value, entering in zip(op.operands, source.operands, strict=True):
                        if value in dropped:
                            new.setdefault(value, new.get(entering, entering))
                if repetition >= left:
                    dropped.update(op.results)
                    continue
                repeated.update(op.results)
            ops.append(_rewire(op, new))
        return self._finish(ops, params, new, frozenset(value.name for value in repeated))

    def _places(self) -> list[tuple[_Run | None, int]]:
        """Return the run and the repetition of each operation."""
        places: list[tuple[_Run | None, int]] = [(None, 0)] * len(self.body.ops)
        for run in self.runs:
            for i in range(run.period * run.count):
                places[run.start + i] = run, i // run.period
        return places

    def _finish(
        self,
        ops: list[Op],
        params: list[tuple[int, Value]],
        new: Mapping[Value, Value],
        repeated: frozenset[str],
    ) -> FoldedProgram | None:
        """Return the function of the kept operations, with the results that they compute; `None` if
        one of them uses a value of a removed operation. `new` has the values that replace those of
        removed operations."""
        function = self.module.main
        defined = {value for _, value in params}
        for op in ops:
            if not defined.issuperset(op.uses()):
                return None
            defined.update(op.results)
        results = []
        returned = set(self.body.returns)
        for value, sharding in zip(self.body.returns, function.result_shardings, strict=True):
            if value not in defined:
                # A kept layer returns its own results, as its updated weights, already.
                value = new.get(value, value)
                if value in returned:
                    continue
            results.append((value, sharding))
        body = Block(
            tuple(value for _, value in params), tuple(ops), tuple(value for value, _ in results)
        )
        folded = Function(function.name, body, tuple(sharding for _, sharding in results))
        module = replace(self.module, functions=(folded, *self.module.functions[1:]))
        return FoldedProgram(module, tuple(number for number, _ in params), repeated)


def _rewire(op: Op, new: Mapping[Value, Value]) -> Op:
    if new.keys().isdisjoint(op.uses()):
        return op
    (rewired,) = substitute(Block((), (op,), ()), new).ops
    return rewired


def _find_runs(body: Block, layers: int) -> list[_Run]:
    """Return the runs of about `layers` repetitions, in the order of the program."""
    least = layers - MAX_BOUNDARY_LAYERS
    if least < 2:
        return []
    numbers: dict[Hashable, int] = {}
    signs = np.array(
        [numbers.setdefault(_signature(op), len(numbers)) for op in body.ops], dtype=np.int64
    )
    next_of = _next_occurrences(signs)
    breaks: dict[int, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
    runs: list[_Run] = []
    at = 0
    while at < len(signs):
        found = None
        other = next_of[at]
        for _ in range(32):
            if other < 0 or other - at > MAX_PERIOD:
                break
            period = int(other - at)
            if period not in breaks:
                breaks[period] = np.flatnonzero(signs[:-period] != signs[period:])
            ends = breaks[period]
            index = int(np.searchsorted(ends, at))
            end = int(ends[index]) if index < len(ends) else len(signs) - period
            count = min((end - at) // period + 1, layers)
            if count >= least:
                found = _Run(at, period, count)
                break
            other = next_of[other]
        if found is None:
            at += 1
        else:
            runs.append(found)
            at += found.period * found.count
    return runs


def _next_occurrences(
    signs: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> list[int]:
    """Return for each position the next position with the same number, or -1."""
    following = [-1] * len(signs)
    last: dict[int, int] = {}
    for position in range(len(signs) - 1, -1, -1):
        number = int(signs[position])
        following[position] = last.get(number, -1)
        last[number] = position
    return following


def _signature(op: Op) -> Hashable:
    """Return what repetitions of an operation have in common."""
    return (
        op.spec.name,
        tuple(value.type for value in op.operands),
        tuple(value.type for value in op.results),
        str(sorted((name, str(attr)) for name, attr in op.attrs.items())),
        tuple(tuple(_signature(inner) for inner in block.ops) for block in op.blocks),
    )
