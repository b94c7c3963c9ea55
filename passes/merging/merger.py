"""Gives values one dimension in front for each atom of the mesh along which devices differ.

before: `%h = dot(%x, %w, dims="bi,ih->bh") : f32[16, 128]`, where `%x` differs along `data`
after:  `%h = dot(%x, %w, dims="abi,ih->abh") : f32[4, 16, 128]`

Operations are visited in order. What stands for a value has the dimensions of its atoms in front,
in the order of the mesh, and then its own; what is the same on all devices is computed once, as it
is. The most frequent operations are made in one step; any other becomes one over more loops by the
rule it declares (`OpSpec.batch`), one atom after the other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardir.build import Builder, substitute
from shardir.errors import MergeError
from shardir.interpret import apply
from shardir.ir import Block, Op, Value
from shardir.opset import Dense
from shardir.passes.batcher import Batcher
from shardir.passes.merging.atoms import Atoms, sizes
from shardir.placement import Axes
from shardir.types import INTEGERS, TensorType

SMALL = 1024
"""The largest array of positions that is followed in numbers."""


class Spread(NamedTuple):
    """What stands for a value of the per-device program: with a dimension for each of `atoms`."""

    value: Value
    atoms: Axes


Rule = Callable[["Merger", Op], Sequence[Spread]]
"""Appends what stands for an operation; returns what stands for its results."""
Array = npt.NDArray[Any]


class Merger:
    """Grows in `b`. `new` are the values that stand for those of the program, `along` the atoms
    in front of them, where there are any; `makers` are the operations of the program.

    Blocks inside this one share both: values have one definition, so they cannot be confused.
    """

    def __init__(
        self, b: Builder, atoms: Atoms, rules: Mapping[str, Rule], outer: "Merger | None" = None
    ) -> None:
        self.b, self.atoms, self.rules = b, atoms, rules
        self.new: dict[Value, Value] = outer.new if outer else {}
        self.along: dict[Value, Axes] = outer.along if outer else {}
        self.makers: dict[Value, Op] = outer.makers if outer else {}
        self.constants: dict[Value, Op] = outer.constants if outer else {}
        self.numbers: dict[Value, Array] = outer.numbers if outer else {}

    def inner(self) -> "Merger":
        """The same for a block inside this one."""
        return Merger(self.b.inner(), self.atoms, self.rules, self)

    # Values

    def param(self, old: Value, atoms: Axes) -> Value:
        """A parameter that stands for a value."""
        made = Value(self.type(old.type, atoms), old.name)
        self.stand(old, Spread(made, atoms))
        return made

    def stand(self, old: Value, spread: Spread) -> None:
        self.new[old] = spread.value
        if spread.atoms:
            self.along[old] = spread.atoms
        else:
            self.along.pop(old, None)

    def get(self, old: Value) -> Spread:
        """What stands for a value."""
        return Spread(self.new.get(old, old), self.along.get(old, ()))

    def type(self, type: TensorType, atoms: Axes) -> TensorType:
        """The type with dimensions for `atoms` in front."""
        return type.with_shape((*sizes(atoms), *type.shape)) if atoms else type

    def union(self, values: Sequence[Value]) -> Axes:
        """The atoms along which any of the program's values differs."""
        found: Axes = ()
        for value in values:
            atoms = self.along.get(value)
            if atoms and atoms != found:
                found = self.atoms.union(found, atoms) if found else atoms
        return found

    def whole(self, old: Value, atoms: Axes) -> Value:
        """What stands for a value, with all of `atoms`, of which it has some."""
        return self.widened(self.get(old), atoms)

    def widened(self, spread: Spread, atoms: Axes) -> Value:
        """The value repeated along those of `atoms` that it lacks."""
        value, own = spread
        if own == atoms:
            return value
        rank = value.type.rank - len(own)
        type = value.type.with_shape((*sizes(atoms), *value.type.shape[len(own) :]))
        constant = self.constants.get(value)
        if constant is not None and not isinstance(constant.attrs["value"], Dense):
            made: Value = self.b.constant(value=constant.attrs["value"], result=type)
            self.constants[made] = self.b.ops[-1]
            return made
        dims = (*map(atoms.index, own), *range(len(atoms), len(atoms) + rank))
        made = self.b.broadcast(value, dims=dims, result=type)
        return made

    def called(self, value: Value, name: str, start: int) -> Value:
        """The value under a name, if it was made last, by an operation from `start` on."""
        ops = self.b.ops
        if len(ops) <= start or ops[-1].results != (value,):
            return value
        made = Value(value.type, self.b.names.fresh(name))
        ops[-1] = replace(ops[-1], results=(made,))
        return made

    def number(self, value: Value) -> Array | None:
        """All elements of one of the new values, where they are known and few."""
        found = self.numbers.get(value)
        if found is None and value in self.constants and value.type.size <= SMALL:
            found = self.numbers[value] = np.asarray(apply(self.constants[value], ()))
        return found

    # Operations

    def run(self, ops: Sequence[Op]) -> None:
        """Append what stands for `ops`."""
        b, along, rules = self.b, self.along, self.rules
        outside = b.loc, b.why
        for op in ops:
            b.loc, b.why = op.loc, op.why
            start = len(b.ops)
            self.makers.update(dict.fromkeys(op.results, op))
            rule = rules.get(op.name)
            if rule is not None:
                self.settle(op, rule(self, op), start)
            elif op.spec.effect:
                raise refusal(op, "acts on each device by itself")
            elif op.spec.spmd or op.blocks:
                raise refusal(op, "has no meaning outside of devices")
            elif not any(value in along for value in op.operands):
                self.copy(op)
            elif op.spec.elementwise:
                self.pointwise(op)
            else:
                self.settle(op, (SIMPLE.get(op.name) or atom_by_atom)(self, op), start)
            if self.numbers:
                self.follow(start)
        b.loc, b.why = outside

    def copy(self, op: Op) -> None:
        new = self.new
        if any(value in new for value in op.operands):
            op = replace(op, operands=tuple(new.get(value, value) for value in op.operands))
        if op.name == "constant":
            self.constants[op.results[0]] = op
            if self.atoms.levels.place is not None and op.results[0].type.dtype in INTEGERS:
                # It may be where the process is, of which more follows.
                self.number(op.results[0])
        self.b.append(op)

    def pointwise(self, op: Op) -> None:
        """Operands of rank 0 that serve a whole tensor stay as they are, unless they differ."""
        atoms = self.union(op.operands)
        shape = op.results[0].type.shape
        operands = []
        for old in op.operands:
            spread = self.get(old)
            if old.type.shape == shape:
                operands.append(self.widened(spread, atoms))
            elif spread.atoms:
                dims = tuple(map(atoms.index, spread.atoms))
                type = old.type.with_shape((*sizes(atoms), *shape))
                operands.append(self.b.broadcast(spread.value, dims=dims, result=type))
            else:
                operands.append(spread.value)
        results = tuple(Value(self.type(old.type, atoms), old.name) for old in op.results)
        for old, made in zip(op.results, results, strict=True):
            self.stand(old, Spread(made, atoms))
        self.b.append(replace(op, operands=tuple(operands), results=results))

    def settle(self, op: Op, made: Sequence[Spread], start: int) -> None:
        """Let what was made from operation number `start` on stand for the results of `op`, under
        their names."""
        ops = self.b.ops
        fresh = {value for each in ops[start:] for value in each.results}
        renamed: dict[Value, Value] = {}
        for old, (value, atoms) in zip(op.results, made, strict=True):
            if value in fresh and value not in renamed:
                renamed[value] = Value(value.type, old.name)
            self.stand(old, Spread(renamed.get(value, value), atoms))
        if renamed:
            ops[start:] = substitute(Block((), tuple(ops[start:]), ()), renamed).ops
            for old_made, new_made in renamed.items():
                if old_made in self.numbers:
                    self.numbers[new_made] = self.numbers[old_made]
        for each in ops[start:]:
            if each.name == "constant":
                self.constants[each.result] = each

    def follow(self, start: int) -> None:
        """Compute what depends on positions of devices alone, as far as it is small."""
        numbers = self.numbers
        for op in self.b.ops[start:]:
            if op.blocks or not any(value in numbers for value in op.operands):
                continue
            if any(value.type.size > SMALL for value in op.results) or not all(
                value.type.dtype in ("bool", *INTEGERS) for value in op.tensors
            ):
                continue
            arrays = [self.number(value) for value in op.operands]
            known = [array for array in arrays if array is not None]
            if len(known) == len(arrays) and op.spec.reference is not None:
                made = apply(op, known)
                pairs = zip(op.results, made if len(op.results) > 1 else (made,), strict=True)
                numbers.update((value, np.asarray(array)) for value, array in pairs)


def refusal(op: Op, reason: str) -> MergeError:
    """A `MergeError` that says which operation is meant and where it comes from."""
    what = f"%{op.results[0].name} = {op.name}" if op.results else op.name
    origin = f"\n --> {op.loc}" if op.loc else ""
    return MergeError(f"{what} {reason}{origin}")


# Operations that are made in one step


def _broadcast(merger: Merger, op: Op) -> Sequence[Spread]:
    (x,) = op.operands
    value, atoms = merger.get(x)
    dims = (*range(len(atoms)), *_later(op.attrs["dims"], atoms))
    type = merger.type(op.result.type, atoms)
    return [Spread(merger.b.broadcast(value, dims=dims, result=type), atoms)]


def _transpose(merger: Merger, op: Op) -> Sequence[Spread]:
    value, atoms = merger.get(op.operands[0])
    perm = (*range(len(atoms)), *_later(op.attrs["perm"], atoms))
    return [Spread(merger.b.transpose(value, perm=perm), atoms)]


def _alike(merger: Merger, op: Op) -> Sequence[Spread]:
    """Operations whose attributes hold numbers of dimensions, or none, and one operand."""
    value, atoms = merger.get(op.operands[0])
    attrs = dict(op.attrs)
    for name in ("dims", "dim"):
        if name in attrs:
            attrs[name] = _later(attrs[name], atoms)
    types = tuple(merger.type(result.type, atoms) for result in op.results)
    made = merger.b.emit(op.spec, value, result=types[0] if len(types) == 1 else types, **attrs)
    return [Spread(each, atoms) for each in (made if isinstance(made, tuple) else (made,))]


def _concatenate(merger: Merger, op: Op) -> Sequence[Spread]:
    atoms = merger.union(op.operands)
    parts = [merger.whole(value, atoms) for value in op.operands]
    return [Spread(merger.b.concatenate(*parts, dim=op.attrs["dim"] + len(atoms)), atoms)]


def _slice(merger: Merger, op: Op) -> Sequence[Spread]:
    value, atoms = merger.get(op.operands[0])
    starts = (*(0 for _ in atoms), *op.attrs["starts"])
    strides = (*(1 for _ in atoms), *op.attrs["strides"])
    type = merger.type(op.result.type, atoms)
    return [Spread(merger.b.slice(value, starts=starts, strides=strides, result=type), atoms)]


def _pad(merger: Merger, op: Op) -> Sequence[Spread]:
    x, filler = op.operands
    if merger.along.get(filler):
        return atom_by_atom(merger, op)
    value, atoms = merger.get(x)
    attrs = {name: (*(0 for _ in atoms), *each) for name, each in op.attrs.items()}
    return [Spread(merger.b.pad(value, merger.get(filler).value, **attrs), atoms)]


def _dot(merger: Merger, op: Op) -> Sequence[Spread]:
    """One more letter for each atom, for the operands that have it and for the result."""
    atoms = merger.union(op.operands)
    dims: str = op.attrs["dims"]
    operands, _, output = dims.partition("->")
    free = (letter for letter in _LETTERS if letter not in dims)
    letter = dict(zip(atoms, free, strict=False))
    if len(letter) < len(atoms):
        raise refusal(op, "has more loops than there are letters")
    terms = [
        "".join(letter[atom] for atom in merger.along.get(value, ())) + term
        for value, term in zip(op.operands, operands.split(","), strict=True)
    ]
    dims = f"{','.join(terms)}->{''.join(letter.values())}{output}"
    values = [merger.get(value).value for value in op.operands]
    type = merger.type(op.result.type, atoms)
    return [Spread(merger.b.dot(*values, dims=dims, result=type), atoms)]


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _later(dims: Any, atoms: Axes) -> Any:
    """Numbers of dimensions, behind those of atoms."""
    count = len(atoms)
    return dims + count if isinstance(dims, int) else tuple(dim + count for dim in dims)


SIMPLE: dict[str, Rule] = {
    "broadcast": _broadcast,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "slice": _slice,
    "pad": _pad,
    "dot": _dot,
    **dict.fromkeys(
        ("reshape", "reverse", "sum", "prod", "max", "min", "any", "all", "random_bits"), _alike
    ),
    "random_split": _alike,
}


def atom_by_atom(merger: Merger, op: Op) -> Sequence[Spread]:
    """By the rule of the operation: one atom after the other, the last of the mesh first."""
    atoms = merger.union(op.operands)
    if op.spec.batch is None and not op.spec.elementwise:
        raise refusal(op, "cannot be done for many devices at once")
    own = [merger.along.get(value, ()) for value in op.operands]
    operands, results, ops = list(op.operands), list(op.results), [op]
    found: list[Axes] = [() for _ in results]
    for atom in reversed(atoms):
        batcher = Batcher(Builder(merger.b.names, op.loc), atom.size, {})
        for value, has in zip(operands, (atom in each for each in own), strict=True):
            if value not in batcher.new:
                shape = (atom.size, *value.type.shape) if has else value.type.shape
                batcher.new[value] = Value(value.type.with_shape(shape), value.name)
        batcher.run(ops)
        operands = [batcher.new[value] for value in operands]
        grown = [batcher.has(value) for value in results]
        results = [batcher.get(value) for value in results]
        found = [(atom, *has) if more else has for has, more in zip(found, grown, strict=True)]
        ops = batcher.b.ops
    given = dict(zip(operands, (merger.get(value).value for value in op.operands), strict=True))
    merger.b.ops.extend(substitute(Block((), tuple(ops), ()), given).ops)
    return [Spread(given.get(value, value), has) for value, has in zip(results, found, strict=True)]
