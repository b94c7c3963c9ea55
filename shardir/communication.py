"""What a per-device program communicates: every collective with its bytes and its reason."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from shardir.ir import Block, Loc, Module, Op
from shardir.placement import Axis


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective of a program.

    `axes` are the mesh axes it goes along (`data`, or `data:(1)2` for a part of one),
    `group_size` how many devices take part in each exchange, `nbytes` the bytes of its results on
    one device, `executions` how often one run executes it (`None` inside a `while`, where nobody
    knows), `value` its result, `loc` the user's line and `why` the reason it exists.
    """

    kind: str
    axes: tuple[str, ...]
    group_size: int
    nbytes: int
    executions: int | None
    value: str
    loc: Loc | None
    why: str


def collectives(module: Module) -> list[Collective]:
    """Every collective of the module's first function, in program order, loops included.

    A program that has not been partitioned has none.
    """
    return list(_of_block(module, module.main.body, 1))


def _of_block(module: Module, block: Block, times: int | None) -> Iterator[Collective]:
    for op in block.ops:
        if op.spec.collective:
            yield _described(module, op, times)
        for inner in op.blocks:
            yield from _of_block(module, inner, _repeated(op, times))


def _repeated(op: Op, times: int | None) -> int | None:
    if op.name == "while" or times is None:
        return None
    return times * op.attrs["length"] if op.name == "scan" else times


def _described(module: Module, op: Op, times: int | None) -> Collective:
    axes: Sequence[Axis] = op.attrs.get("axes") or op.attrs.get("source") or ()
    sizes = {name: size for mesh in module.meshes for name, size in mesh.axes}
    return Collective(
        op.name,
        tuple(a.name if a.size == sizes.get(a.name) else str(a) for a in axes),
        prod(axis.size for axis in axes),
        sum(result.type.nbytes for result in op.results),
        times,
        op.results[0].name,
        op.loc,
        op.why,
    )


def show_bytes(count: float) -> str:
    """A number of bytes as people write it: `512 B`, `4.0 KiB`, `16.0 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")
