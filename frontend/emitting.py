"""Emitting: from a traced program, or a module of a file, to the files that a target writes.

A program that is partitioned already is taken as it is; any other one goes through the passes of
every program. Then come those of the target. To let the emitted program check itself, it is given
random arguments and what the reference interpreter computes from them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shardir.backends.emission import Boundary, Emission, EmissionError, Samples, get_target
from shardir.interpret import mesh_of, run
from shardir.ir import Function, Global, Module
from shardir.mesh import Mesh
from shardir.passes.pipeline import DEFAULT, Pipeline
from shardir.placement import Sharding
from shardir.sampling import random_arguments
from shardir.verify import verify

ALONE = Mesh("mesh", ())
"""The mesh of a program for one device."""


@dataclass(frozen=True)
class Naming:
    """What the user calls a program's arguments and results, and which of them are special.

    `values` has the arrays that the function refers to, which are the last arguments.
    """

    arguments: tuple[str, ...]
    results: tuple[str, ...]
    donated: frozenset[int] = frozenset()
    values: tuple[Any, ...] = ()

    @classmethod
    def of(cls, function: Function) -> "Naming":
        """The names in the program, where no more is known."""
        count = len(function.results)
        return cls(
            tuple(param.name for param in function.body.params),
            tuple("result" if count == 1 else f"result[{i}]" for i in range(count)),
        )


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
    naming = naming or Naming.of(module.main)
    parted = module
    if module.main.spmd is None and (module.meshes or pipeline is not None):
        parted = (pipeline or Pipeline.parse(DEFAULT))(module)
    parted = Pipeline.parse(get_target(target).pipeline)(parted)
    verify(parted)
    main, mesh = parted.main, ALONE if parted.main.spmd is None else mesh_of(parted)
    ins, outs = _globals(main)
    visible = len(ins) - len(naming.values)
    labels = (*naming.arguments[:visible], *(p.name for p in main.body.params[visible:]))
    values = (None,) * visible + tuple(np.asarray(value) for value in naming.values)
    arguments = tuple(
        Boundary(param.name, label, g.type, param.type, g.sharding, i in naming.donated, value)
        for i, (param, label, g, value) in enumerate(
            zip(main.body.params, labels, ins, values, strict=True)
        )
    )
    results = tuple(
        Boundary(value.name, label, g.type, value.type, g.sharding)
        for value, label, g in zip(main.body.returns, naming.results, outs, strict=True)
    )
    sampled = _samples(module, arguments, seed) if samples else None
    return Emission(parted, mesh, arguments, results, main.name, sampled)


def write(
    emission: Emission, target: str, directory: str | Path, options: Mapping[str, Any]
) -> list[Path]:
    """Write a program's files into `directory`, which is made if need be; returns their paths."""
    chosen = get_target(target)
    stated = {name: _text(value) for name, value in options.items()}
    chosen.check_options(stated)
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


def _globals(main: Function) -> tuple[Sequence[Global], Sequence[Global]]:
    """What the parameters and returned values are parts of."""
    if main.spmd is not None:
        return main.spmd.params, main.spmd.results

    def whole(type: Any) -> Global:
        return Global(type, Sharding.whole(ALONE.name, type.rank))

    return [whole(v.type) for v in main.body.params], [whole(v.type) for v in main.body.returns]


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
