"""Emitting: from a traced program, or a module of a file, to the files that a target writes.

A program that is partitioned already is taken as it is; any other one goes through the passes of
every program. Then come those of the target. To let the emitted program check itself, it is given
random arguments and what the reference interpreter computes from them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from shardir.backends.emission import Boundary, Emission, EmissionError, Samples, get_target
from shardir.interpret import run
from shardir.ir import Module
from shardir.passes.pipeline import DEFAULT, Pipeline
from shardir.sampling import random_arguments
from shardir.verify import verify


@dataclass(frozen=True)
class Naming:
    """What the user calls a program's arguments and results, and which of them are special.

    `values` has the arrays that the function refers to, which are the last arguments.
    """

    arguments: tuple[str, ...]
    results: tuple[str, ...]
    donated: frozenset[int] = frozenset()
    values: tuple[Any, ...] = ()

    def named(self, emission: Emission) -> Emission:
        """The emission with these names."""
        visible = len(emission.arguments) - len(self.values)
        shown = [
            replace(argument, label=self.arguments[i], donated=i in self.donated)
            for i, argument in enumerate(emission.arguments[:visible])
        ]
        hidden = [
            replace(argument, value=np.asarray(value))
            for argument, value in zip(emission.arguments[visible:], self.values, strict=True)
        ]
        results = [
            replace(result, label=label)
            for result, label in zip(emission.results, self.results, strict=True)
        ]
        return replace(emission, arguments=(*shown, *hidden), results=tuple(results))


def _anywhere(module: Module) -> Module:
    """The module without saying which devices of this machine its meshes are made of."""
    meshes = tuple(replace(mesh, device_ids=None) if mesh.axes else mesh for mesh in module.meshes)
    return replace(module, meshes=meshes)


def emission_of(
    module: Module,
    target: str,
    naming: Naming | None = None,
    pipeline: Pipeline | None = None,
    samples: bool = False,
    seed: int = 0,
) -> Emission:
    """What a target gets to emit of the first function of `module`.

    `pipeline` partitions the module if it is not; `samples` adds whole arguments that are random
    by `seed`, and their results.
    """
    parted = module
    if module.main.spmd is None and (module.meshes or pipeline is not None):
        parted = (pipeline or Pipeline.parse(DEFAULT))(module)
    parted = _anywhere(Pipeline.parse(get_target(target).pipeline)(parted))
    verify(parted)
    emission = Emission.of(parted)
    if naming is not None:
        emission = naming.named(emission)
    if not samples:
        return emission
    return replace(emission, samples=_samples(module, emission.arguments, seed))


def write(
    emission: Emission, target: str, directory: str | Path, options: Mapping[str, Any]
) -> list[Path]:
    """Write a program's files into `directory`, which is made if need be; returns their paths."""
    chosen = get_target(target)
    stated = {name: _text(value) for name, value in options.items()}
    chosen.check_options(stated)
    if not isinstance(directory, (str, Path)):
        raise EmissionError(
            f"programs are written into a folder, given as a path, got {directory!r}"
        )
    files = chosen.emit(emission, stated)
    paths = []
    for name, content in files.items():
        path = Path(directory) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                path.write_text(content, encoding="utf-8")
        except OSError as error:
            raise EmissionError(f"cannot write {str(path)!r}: {error.strerror}") from None
        paths.append(path)
    return paths


def _samples(module: Module, arguments: Sequence[Boundary], seed: int) -> Samples:
    drawn = random_arguments(module, seed)
    given = [
        array if boundary.value is None else boundary.value
        for array, boundary in zip(drawn, arguments, strict=True)
    ]
    return Samples(tuple(given), tuple(run(module, given)))


def _text(value: Any) -> str:
    """An option as text: what is true or false is spelled as on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)
