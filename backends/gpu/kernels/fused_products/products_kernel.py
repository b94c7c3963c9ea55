"""Write the kernels of fused products: one of blocks of rows, and one of blocks of columns.

The kernel of rows computes reductions and column sums (in attention: maxima, sums and the result,
or the gradient of queries). The kernel of columns computes row sums (the gradients of keys and
values), from the values of rows that the first has stored. Both compute scores again rather than
storing them, and add in a fixed order.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import prod

from shardir.backends.gpu.dtypes import POINTER_TYPES, PRODUCT_DTYPES
from shardir.backends.gpu.kernels.arithmetic import expression
from shardir.backends.gpu.kernels.fused_products.product_tiles import ProductTile, choose_tile
from shardir.backends.gpu.kernels.fused_products.products_group import (
    ProductsGroup,
    make_products_group,
)
from shardir.backends.gpu.kernels.fused_products.score_passes import (
    ScorePass,
    find_exponential_sums,
)
from shardir.backends.gpu.kernels.fused_products.score_writer import ScoreWriter, make_score_writer
from shardir.backends.gpu.kernels.kernel import KernelLaunch, KernelRefusal, KernelText
from shardir.backends.gpu.kernels.kernel_text import MAX_LINE_CHARACTERS, function_text
from shardir.backends.gpu.kernels.terms import KernelTerm
from shardir.backends.gpu.kernels.tile_sizes import TileSizes, ceil_divide
from shardir.backends.gpu.line_wrapping import wrap_line
from shardir.errors import count_noun
from shardir.ir.module import Op, Value
from shardir.ops.control_flow.fused_products import fused_products
from shardir.ops.shape.create import iota


def write_products_kernel(
    op: Op, name: str, sizes: TileSizes, precision: str, sums: Set[int] = frozenset()
) -> KernelText | KernelRefusal:
    """Return the kernels of an operation `fused_products`.

    `precision` is that of f32 products. `sums` are the positions of operands that are sums of
    exponentials, as `find_sum_operands` returns them.
    """
    group = make_products_group(op, name, sums)
    nest, block = group.nest, group.named.block
    for product in (*nest.score_products, *nest.sums):
        for value in product.tensors:
            if value.type.dtype == "f64":
                return KernelRefusal("Triton 3.6 does not compile all products of f64")
            if value.type.dtype not in PRODUCT_DTYPES:
                return KernelRefusal(f"tl.dot has no {value.type.dtype}, the type of %{value.name}")
    row_sums = {each.result for each in group.row_sums}
    texts: list[str] = []
    launches: list[KernelLaunch] = []
    scratch = group.permutation_lines()
    if any(value not in row_sums for value in block.returns) or group.row_values:
        made = _kernel_of_rows(group, sizes, precision)
        if isinstance(made, KernelRefusal):
            return made
        texts.append(made.text(group.named.docstring()))
        launches.append(made.launch)
        scratch += [
            group.named.allocation(group.named.names[value], value.type.shape, value.type.dtype)
            for value in group.row_values
            if value not in block.returns
        ]
    if group.row_sums:
        made = _kernel_of_columns(group, sizes, precision)
        if isinstance(made, KernelRefusal):
            return made
        texts.append(made.text(_docstring_of_columns(group) if texts else group.named.docstring()))
        launches.append(made.launch)
    kernel = group.named.kernel(texts, launches, scratch)
    return replace(kernel, may_exceed_shared_memory=True)


def find_sum_operands(op: Op, makers: Mapping[Value, Op]) -> frozenset[int]:
    """Return the positions of operands that other fused products return as sums of exponentials,
    which are NaN or at least 1; `makers` has the operations by their results."""
    found = set[int]()
    for number, value in enumerate(op.operands if op.spec is fused_products else ()):
        maker = makers.get(value)
        if maker is not None and maker.spec is fused_products:
            (block,) = maker.blocks
            made = block.returns[maker.results.index(value)]
            if made in find_exponential_sums(block.ops):
                found.add(number)
    return frozenset(found)


def _docstring_of_columns(group: ProductsGroup) -> list[str]:
    """Return the docstring of the kernel of columns, if the kernel of rows has the computation."""
    words = (f"%{group.named.words[op.result]}" for op in group.row_sums)
    return [f"{', '.join(words)} of `{group.named.name}_rows`, from the values that it stores."]


@dataclass(frozen=True, slots=True)
class _Kernel:
    launch: KernelLaunch
    lines: Sequence[str]

    def text(self, docstring: Sequence[str]) -> str:
        width = MAX_LINE_CHARACTERS - 4
        lines = [part for line in self.lines for part in wrap_line(line, width).splitlines()]
        return function_text(self.launch, docstring, lines)


def _kernel_of_rows(
    group: ProductsGroup, sizes: TileSizes, precision: str
) -> _Kernel | KernelRefusal:
    """Return the kernel that computes reductions, column sums and values of rows."""
    nest = group.nest
    tile = choose_tile(group, group.column_sums, True, precision, sizes)
    if tile is None:
        return _refuse_features(group)
    outer, inner = (group.make_side(nest.row_loop, tile.outer, 0),
                    group.make_side(nest.column_loop, tile.inner, 1))  # fmt: skip
    writer = make_score_writer(group, outer, inner, precision)
    programs = _write_indices(writer, nest.batch_loops)
    sequential = tile.outer * inner.size * len(group.passes)
    if reason := _reason_of_few_programs(programs, sequential, sizes):
        return KernelRefusal(reason)
    first = len(writer.lines)
    for each in group.passes:
        _write_pass(writer, each)
    sums = {op.result for op in group.column_sums}
    stored = list(dict.fromkeys([*group.named.block.returns, *group.row_values]))
    results = {value: pointer for value, pointer, _ in reversed(group.named.stores())}
    pointers: dict[str, str] = {}
    for value in stored:
        if value in {op.result for op in group.row_sums}:
            continue
        pointer = results.get(value, f"{group.named.names[value]}_ptr")
        pointers[pointer] = POINTER_TYPES[value.type.dtype]
        if value in sums:
            writer.store_sum(value, pointer)
        else:
            writer.emit(writer.collect_needed([value], through=False))
            writer.store(value, pointer)
    return _finish(writer, f"{group.named.name}_rows", first, programs, tile, pointers)


def _write_pass(writer: ScoreWriter, each: ScorePass) -> None:
    """Write a loop over the columns, and what follows from its sums."""
    nest = writer.group.nest
    for op in each.reductions:
        writer.start_reduction(op)
    for op in each.sums:
        writer.start_sum(op)
    roots = [op.operands[0] for op in each.reductions]
    roots += [value for op in each.sums for value in nest.scores_and_matrix(op)]
    writer.emit_outside(roots, [nest.column_loop])
    maxima = dict.fromkeys(found.largest for found in each.online.values())
    with _inner_loop(writer):
        for op in each.reductions:
            if op not in maxima and op not in each.online:
                writer.add_reduction(op)
        for largest in maxima:
            writer.advance_maximum(largest)
            for op, found in each.online.items():
                if found.largest is largest and op in each.reductions:
                    writer.add_reduction(op, found)
                elif found.largest is largest:
                    writer.add_sum(op, found)
            name = writer.names[largest.result]
            writer.append_line(f"{name} = {writer.next_maxima[largest]}")
        for op in each.sums:
            if op not in each.online:
                writer.add_sum(op)
    for op in each.reductions:
        dtype, name = op.result.type.dtype, writer.names[op.result]
        writer.terms[op.result] = KernelTerm(name, dtype, spans=writer.outer.spans)
    for op, found in each.online.items():
        division = writer.division(found)
        if division is not None and op in each.sums:
            _divide_sum(writer, op, division)


def _divide_sum(writer: ScoreWriter, op: Op, division: Op) -> None:
    """Write the division of a sum of exponentials by their sum."""
    name = writer.names[op.result]
    operands = [KernelTerm(name, "f32"), writer.term(division.operands[1])]
    writer.append_line(f"{name} = {expression(division, operands)}")


def _kernel_of_columns(
    group: ProductsGroup, sizes: TileSizes, precision: str
) -> _Kernel | KernelRefusal:
    """Return the kernel that computes row sums."""
    nest = group.nest
    tile = choose_tile(group, group.row_sums, False, precision, sizes)
    if tile is None:
        return _refuse_features(group)
    outer, inner = (group.make_side(nest.column_loop, tile.outer, 0),
                    group.make_side(nest.row_loop, tile.inner, 1))  # fmt: skip
    writer = make_score_writer(group, outer, inner, precision)
    for value in group.row_values:
        del writer.makers[value]
    programs = _write_indices(writer, group.parallel_loops)
    looped = [loop for loop in nest.batch_loops if loop not in group.parallel_loops]
    sequential = tile.outer * inner.size * prod(nest.extents[loop] for loop in looped)
    if reason := _reason_of_few_programs(programs, sequential, sizes):
        return KernelRefusal(reason)
    first = len(writer.lines)
    for op in group.row_sums:
        writer.start_sum(op)
    roots = [value for op in group.row_sums for value in nest.scores_and_matrix(op)]
    writer.emit_outside(roots, [nest.row_loop, *looped])
    with ExitStack() as loops:
        for number, loop in enumerate(looped):
            name = group.batch_names[loop]
            loops.enter_context(writer.loop_body(f"for {name} in range({nest.extents[loop]}):"))
            if any(
                op.spec is iota and loop in writer.layout.strides[op.result] for op in group.ops
            ):
                writer.append_line(f"{name} = tl.full((), {name}, tl.int32)")
            writer.emit_outside(roots, [nest.row_loop, *looped[number + 1 :]])
        loops.enter_context(_inner_loop(writer))
        for op in group.row_sums:
            writer.add_sum(op)
    results = {value: (pointer, dtype) for value, pointer, dtype in reversed(group.named.stores())}
    pointers: dict[str, str] = {}
    for op in group.row_sums:
        if op.result in results:
            pointer, dtype = results[op.result]
            pointers[pointer] = dtype
            writer.store_sum(op.result, pointer)
    return _finish(writer, f"{group.named.name}_columns", first, programs, tile, pointers)


def _refuse_features(group: ProductsGroup) -> KernelRefusal:
    nest = group.nest
    matrices = {value for op in nest.score_products for value in op.operands}
    most = max(nest.extents[nest.feature_loop(value)] for value in matrices)
    return KernelRefusal(f"tiles of {most} features do not fit the shared memory of a program")


def _reason_of_few_programs(programs: int, sequential: int, sizes: TileSizes) -> str:
    """Return why programs would leave most multiprocessors idle for long; "" if they would not."""
    if programs >= sizes.min_row_programs or sequential <= sizes.max_sequential_elements:
        return ""
    scores = count_noun(sequential, "score")
    return f"it computes {scores} one after the other in {count_noun(programs, 'program')}"


def _write_indices(writer: ScoreWriter, parallel: Sequence[int]) -> int:
    """Write the indices of a program's block; return the number of programs."""
    group, outer = writer.group, writer.outer
    program = group.named.own_name("program")
    writer.append_line(f"{program} = {group.named.program_id(0)}")
    blocks = ceil_divide(outer.size, outer.length)
    count = prod(group.nest.extents[loop] for loop in parallel)
    block = program if count == 1 else f"{program} % {blocks}"
    name = outer.index.partition("[")[0]
    start = f"{block} * {outer.block} + " if blocks > 1 else ""
    writer.append_line(f"{name} = {start}tl.arange(0, {outer.block})")
    writer.lines += outer.mask_lines()
    step = blocks * count
    for loop in parallel:
        extent = group.nest.extents[loop]
        step //= extent
        text = program if step == 1 else f"{program} // {step}"
        text += f" % {extent}" if step * extent < blocks * count else ""
        writer.append_line(f"{group.batch_names[loop]} = {text}")
    return blocks * count


@contextmanager
def _inner_loop(writer: ScoreWriter) -> Iterator[None]:
    """Write the lines of the context as the loop over the inner side."""
    inner, named = writer.inner, writer.group.named
    start = named.own_name("start")
    with writer.loop_body(f"for {start} in range(0, {inner.size}, {inner.block}):"):
        wide = ".to(tl.int64)" if named.is_large else ""
        name = inner.index.partition("[")[0]
        writer.append_line(f"{name} = {start} + tl.arange(0, {inner.block}){wide}")
        writer.lines += inner.mask_lines()
        yield


def _finish(
    writer: ScoreWriter,
    function: str,
    first: int,
    programs: int,
    tile: ProductTile,
    results: dict[str, str],
) -> _Kernel:
    """Return the kernel, with the indices of features before line `first`."""
    group = writer.group.named
    indices = [f"{name} = tl.arange(0, {length})" for name, length in writer.features.values()]
    loaded = [value for value in group.block.values() if value in writer.loaded]
    pointers = {**group.pointers(loaded), **results}
    constants = {writer.outer.block: tile.outer, writer.inner.block: tile.inner, **writer.constants}
    options = {"enable_fp_fusion": False, "num_stages": tile.stages}
    launch = KernelLaunch(function, (programs,), pointers, constants, tile.warps, options)
    lines = [*writer.lines[:first], *indices, *writer.lines[first:]]
    return _Kernel(launch, lines)
