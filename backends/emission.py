"""Emission: a target writes a partitioned program as source text that runs without this package.

A target takes the program of one device with explicit collectives, and a description of its
arguments and results: their names, their unsharded types and their shardings. It returns files by
name; the caller writes them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from shardir.display.representation import abbreviate
from shardir.errors import NoRule, ShardirError, suggest_name
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function, GlobalTensor, Module, Op, spmd_mesh_of
from shardir.ir.sharding import Sharding
from shardir.ir.types import NumpyArray, TensorType
from shardir.plugins.registry import Registry

Array = NumpyArray


class EmissionError(ShardirError, ValueError):
    """A target does not support a program or an option; the message names an alternative."""

    @classmethod
    def of(cls, op: Op, reason: str, fix: str) -> Self:
        """Return the error for an unsupported operation, with the reason and the fix."""
        names = ", ".join(f"%{value.name}" for value in op.results) or "no result"
        where = f" ({op.loc})" if op.loc is not None else ""
        return cls(f"{op.name} {names}{where}: {reason}; {fix}")


class NoEmissionRule(NoRule, EmissionError):
    """An operation for which a target of emission has no rule."""


@dataclass(frozen=True)
class ProgramValue:
    """An argument or result of a program.

    `name` is the name of the value in the program, `label` the user's name (`params.w`).
    `shard_type` is the type of a shard according to `sharding`: if a dimension does not divide, all
    shards have the same size, and elements past the end are padding. `donated` arguments may be
    overwritten. `value` is set for an array that the function captures: the program needs it, and
    no caller passes it.
    """

    name: str
    """The name in the program."""
    label: str
    """The user's name, such as `params.w`."""
    unsharded_type: TensorType
    """The type of the global value."""
    shard_type: TensorType
    """The type of the shard of one device, with padding."""
    sharding: Sharding
    """The sharding."""
    donated: bool = False
    """True if the program may overwrite the argument."""
    value: Array | None = None
    """The array that the function captures; `None` for other arguments."""


@dataclass(frozen=True)
class Samples:
    """Unsharded arguments, and the results that the reference interpreter computed from them."""

    arguments: tuple[Array, ...]
    results: tuple[Array, ...]


@dataclass(frozen=True)
class Emission:
    """A program to emit.

    `module` went through the target's pipeline; its first function is the program of one device of
    `mesh`, which has no axes if there is one device. `title` is the name of the user's function.
    With `samples` the emitted program must be able to check itself.
    """

    module: Module
    """The partitioned module; its first function is the program of one device."""
    mesh: Mesh
    """The mesh of the devices; it has no axes if there is one device."""
    arguments: tuple[ProgramValue, ...]
    """The arguments of the program, with captured arrays."""
    results: tuple[ProgramValue, ...]
    """The results of the program."""
    title: str
    """The name of the user's function."""
    samples: Samples | None = None
    """Arguments and results with which the emitted program can check itself, or `None`."""

    def __repr__(self) -> str:
        return abbreviate(str(self.module), comment="// ", whole="print(x.module)")

    @classmethod
    def of(cls, module: Module) -> Self:
        """Return the emission of a module whose arguments and results have the program's names."""
        main = module.main
        count = len(main.body.returns)
        ins, outs = _unsharded_interface(main)
        arguments = [
            ProgramValue(param.name, param.name, each.type, param.type, each.sharding)
            for param, each in zip(main.body.params, ins, strict=True)
        ]
        results = [
            ProgramValue(
                value.name,
                "result" if count == 1 else f"result[{i}]",
                each.type,
                value.type,
                each.sharding,
            )
            for i, (value, each) in enumerate(zip(main.body.returns, outs, strict=True))
        ]
        mesh = SINGLE_DEVICE_MESH if main.spmd is None else spmd_mesh_of(module)
        return cls(module, mesh, tuple(arguments), tuple(results), main.name)


SINGLE_DEVICE_MESH = Mesh("mesh", ())
"""The mesh of a program for one device."""


def _unsharded_interface(main: Function) -> tuple[Sequence[GlobalTensor], Sequence[GlobalTensor]]:
    """Return the unsharded types and shardings of the parameters and results."""
    if main.spmd is not None:
        return main.spmd.params, main.spmd.results

    def whole(type: TensorType) -> GlobalTensor:
        return GlobalTensor(type, Sharding.fully_replicated(SINGLE_DEVICE_MESH.name, type.rank))

    return [whole(v.type) for v in main.body.params], [whole(v.type) for v in main.body.returns]


class Target(ABC):
    """A kind of machine that programs are emitted for."""

    name: ClassVar[str]
    """The name by which commands select the target."""
    pipeline: ClassVar[str] = ""
    """The passes that a partitioned module goes through before it is emitted."""
    options: ClassVar[Mapping[str, str]] = {}
    """The supported options and their descriptions."""
    emits_pipelines: ClassVar[bool] = False
    """True if programs may have calls of pipelines (`EmittablePipeline`); otherwise every device
    computes all stages."""

    @abstractmethod
    def emit(self, emission: Emission, options: Mapping[str, str]) -> dict[str, str | bytes]:
        """Return the files of the program, by their path relative to its folder.

        Raise `EmissionError` if the target does not support the program or the value of an option.
        """

    def check_options(self, options: Mapping[str, str]) -> None:
        """Raise `EmissionError` for an option that this target does not have."""
        for name in options:
            if name not in self.options:
                has = f"it has {', '.join(sorted(self.options)) or 'none'}"
                raise EmissionError(
                    f"target {self.name!r} has no option {name!r}; "
                    f"{suggest_name(name, self.options) or has}"
                )


TARGETS: Registry[Target] = Registry(
    "target",
    "shardir.targets",
    expected="an instance of a subclass of shardir.backends.emission.Target",
    accepts=lambda entry: isinstance(entry, Target),
    name_of=lambda target: target.name,
    own={
        "gpu": ("shardir.backends.gpu", "TARGET"),
        "ipu": ("shardir.backends.ipu", "TARGET"),
    },
)
"""The targets by name. Installed packages and loaded files add theirs (`shardir.plugins`)."""


def get_target(name: str) -> Target:
    """Return the target called `name`; raise `EmissionError` if there is none."""
    return TARGETS.lookup(name, EmissionError)


def register_target(target: Target) -> Target:
    """Add a target under its name; raise `PluginError` if the name is taken."""
    TARGETS.register_object(target)
    return target
