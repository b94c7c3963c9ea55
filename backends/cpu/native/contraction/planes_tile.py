"""The tile of products whose columns use the NCHW layout: see `nchw_layout`."""

from shardir.backends.cpu.native.contraction.elements import Arithmetic
from shardir.backends.cpu.native.contraction.tile import Tile, TileSums, for_each_step
from shardir.backends.cpu.native.llvm.hints import prefetch
from shardir.backends.cpu.native.llvm.target import Machine
from shardir.backends.cpu.native.llvm.text import APART, Function, Module, Value


def emit_planes_tile(
    module: Module, name: str, tile: Tile, packed: Tile, arith: Arithmetic, machine: Machine
) -> None:
    """Emit `name(steps, lhs, planes, table, prefetch_start, prefetch_stride, share_stride, out,
    offsets, rows, columns, adding)`.

    The function computes a tile as in `emit_tile`, with the columns of each step at the offset in
    `table`.
    """
    params = ["i64", "ptr noalias readonly", "ptr noalias readonly", "ptr noalias readonly", "ptr",
              "i64", "i64", "ptr noalias", "ptr noalias readonly", "i64", "i64",
              "i1"]  # fmt: skip
    f = Function(module, name, params, attributes=APART, internal=True)
    steps, lhs, planes, table, prefetch_start, prefetch_stride, share_stride, *place = f.params
    sums = TileSums(f, tile, packed, arith, machine)
    left, line = f.variable("ptr", lhs), f.variable("ptr", prefetch_start)

    def ask_from(first: Value) -> None:
        line.set(f.offset(prefetch_start, first * share_stride))

    def step(k: Value) -> None:
        start = left.get()
        columns = f.offset(planes, f.load(f.offset(table, k, "i64"), "i64"))
        rows = [f.offset(start, i * arith.part) for i in range(tile.height)]
        prefetch(f, line.get())
        line.set(f.offset(line.get(), prefetch_stride))
        sums.add([rows], sums.columns_at(columns))
        left.set(f.offset(start, packed.height * arith.size))

    for_each_step(sums, place, steps, step, ask_from)
    sums.write(place)
    f.leave()
