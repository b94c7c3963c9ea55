"""Emission: a target writes a partitioned program as source text that runs without this package.

What a target gets is the program of one device, its collectives explicit, together with what is
known of its arguments and results: how the user calls them, how large they are altogether, how
they are cut. What it gives back are files by name; who asked for them writes them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Self

import numpy.typing as npt

from shardir.errors import ShardirError, suggestion
from shardir.interpret import mesh_of
from shardir.ir import Function, Global, Module, Op
from shardir.mesh import Mesh
from shardir.placement import Sharding
from shardir.types import TensorType

Array = npt.NDArray[Any]


class EmissionError(ShardirError, ValueError):
    """A program or an option that a target cannot do; says what to write instead."""

    @classmethod
    def of(cls, op: Op, reason: str, fix: str) -> Self:
        """The error for an operation that a target cannot do: why not, and what to do instead."""
        names = ", ".join(f"%{value.name}" for value in op.results) or "no result"
        where = f" ({op.loc})" if op.loc is not None else ""
        return cls(f"{op.name} {names}{where}: {reason}; {fix}")


@dataclass(frozen=True)
class Boundary:
    """One argument or result of a program.

    `name` is the value's in the program, `label` what the user calls it (`params.w`). `whole`
    is its type altogether, `part` what one device holds, cut as `sharding` says: where a dimension
    does not divide, all parts are equally long, and what lies past the whole's end is padding.
    `donated` arguments may be written over. `value` is set for an array that the function refers
    to: the program needs it, and nobody passes it.
    """

    name: str
    label: str
    whole: TensorType
    part: TensorType
    sharding: Sharding
    donated: bool = False
    value: Array | None = None


@dataclass(frozen=True)
class Samples:
    """Whole arguments, and the results that the reference interpreter computed from them."""

    arguments: tuple[Array, ...]
    results: tuple[Array, ...]


@dataclass(frozen=True)
class Emission:
    """A program to emit.

    `module` went through the target's pipeline; its first function is the program of one device of
    `mesh`, which has no axes when there is one device. `title` is the user's function. With
    `samples` the program is to be able to check itself.
    """

    module: Module
    mesh: Mesh
    arguments: tuple[Boundary, ...]
    results: tuple[Boundary, ...]
    title: str
    samples: Samples | None = None

    @classmethod
    def of(cls, module: Module) -> Self:
        """A module, whose arguments and results the user calls as the program does."""
        main = module.main
        count = len(main.body.returns)
        ins, outs = _globals(main)
        arguments = [
            Boundary(param.name, param.name, each.type, param.type, each.sharding)
            for param, each in zip(main.body.params, ins, strict=True)
        ]
        results = [
            Boundary(
                value.name,
                "result" if count == 1 else f"result[{i}]",
                each.type,
                value.type,
                each.sharding,
            )
            for i, (value, each) in enumerate(zip(main.body.returns, outs, strict=True))
        ]
        mesh = ALONE if main.spmd is None else mesh_of(module)
        return cls(module, mesh, tuple(arguments), tuple(results), main.name)


ALONE = Mesh("mesh", ())
"""The mesh of a program for one device."""


def _globals(main: Function) -> tuple[Sequence[Global], Sequence[Global]]:
    """What the parameters and returned values are parts of."""
    if main.spmd is not None:
        return main.spmd.params, main.spmd.results

    def whole(type: TensorType) -> Global:
        return Global(type, Sharding.whole(ALONE.name, type.rank))

    return [whole(v.type) for v in main.body.params], [whole(v.type) for v in main.body.returns]


class Target(ABC):
    """A kind of machine that programs are emitted for."""

    name: ClassVar[str]
    pipeline: ClassVar[str] = ""
    """The passes that a partitioned module goes through before it is emitted."""
    options: ClassVar[Mapping[str, str]] = {}
    """The options it takes, and what each one means."""

    @abstractmethod
    def emit(self, emission: Emission, options: Mapping[str, str]) -> dict[str, str | bytes]:
        """The files of the program, by their path below its folder.

        Raises `EmissionError` for what the target cannot do, and for an option's wrong value.
        """

    def check_options(self, options: Mapping[str, str]) -> None:
        """Raises `EmissionError` for an option that this target does not have."""
        for name in options:
            if name not in self.options:
                has = f"it has {', '.join(sorted(self.options)) or 'none'}"
                raise EmissionError(
                    f"target {self.name!r} has no option {name!r}; "
                    f"{suggestion(name, self.options) or has}"
                )


_PLACES = {
    "gpu": ("shardir.backends.gpu", "TARGET"),
    "ipu": ("shardir.backends.ipu", "TARGET"),
}


def get_target(name: str) -> Target:
    """The target called `name`; raises `EmissionError` naming those that exist."""
    if name not in _PLACES:
        raise EmissionError(
            f"no target is called {name!r}; the targets are {', '.join(sorted(_PLACES))}"
        )
    module, attribute = _PLACES[name]
    target: Target = getattr(import_module(module), attribute)
    return target
