"""The tile of products whose columns use the NCHW layout: see `nchw_layout`."""

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMModule,
    LLVMValue,
    add_outlined_function,
)
from shardir.backends.cpu.kernels.gemm.element_arithmetic import Arithmetic
from shardir.backends.cpu.kernels.gemm.microkernel import (
    RegisterTile,
    StepPrefetch,
    TileAccumulators,
    for_each_step,
)


def emit_nchw_tile(
    module: LLVMModule,
    name: str,
    tile: RegisterTile,
    packed: RegisterTile,
    arith: Arithmetic,
) -> None:
    """Emit `name(steps, lhs, planes, table, prefetch_start, prefetch_stride, share_stride, out,
    offsets, rows, columns, adding)`.

    The function computes a tile as in `emit_tile`, with the columns of each step at the offset in
    `table`.
    """
    params = ["i64", "ptr noalias readonly", "ptr noalias readonly", "ptr noalias readonly", "ptr",
              "i64", "i64", "ptr noalias", "ptr noalias readonly", "i64", "i64",
              "i1"]  # fmt: skip
    f = add_outlined_function(module, name, params)
    steps, lhs, planes, table, prefetch_start, prefetch_stride, share_stride, *place = f.params
    sums = TileAccumulators(f, tile, packed, arith)
    prefetches = StepPrefetch(f, prefetch_start, prefetch_stride, share_stride)
    left = f.variable("ptr", lhs)

    def step(k: LLVMValue) -> None:
        start = left.get()
        columns = f.offset(planes, f.load(f.offset(table, k, "i64"), "i64"))
        rows = [f.offset(start, i * arith.plane_bytes) for i in range(tile.height)]
        prefetches.step()
        sums.add([rows], sums.columns_at(columns))
        left.set(f.offset(start, packed.height * arith.size))

    for_each_step(sums, place, steps, step, prefetches.begin_share)
    sums.write(place)
    f.ret()
