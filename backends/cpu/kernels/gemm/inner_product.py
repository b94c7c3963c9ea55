"""Inner-product kernel: skinny products whose operands both have contiguous K steps.

Vectors of steps are multiplied and accumulated lane by lane; the lanes are added at the end. A
group of `height` rows and `width` columns shares the loaded operands. The result may have any
strides.
"""

from collections.abc import Sequence
from functools import cache
from itertools import product

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
    element_type,
    lane_count,
)
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import Kernel
from shardir.backends.cpu.kernels.gemm.element_arithmetic import interleave_planes
from shardir.backends.cpu.kernels.gemm.product_record import (
    OutputBlock,
    RecordReader,
    emit_while_fits,
)
from shardir.backends.cpu.kernels.gemm.tuning import MIN_ACCUMULATION_CHAINS
from shardir.backends.cpu.kernels.gemm.vector_arithmetic import VectorArithmetic


@cache
def inner_product_kernel(kind: VectorArithmetic, height: int, width: int, columns: int) -> Kernel:
    """Return the kernel for groups of `height` rows and `width` of `columns` columns."""
    name = f"inner_product_{kind.name}_{height}x{width}_{columns}"
    return Kernel(name, lambda machine: _text(machine, name, kind, height, width, columns))


def _text(
    machine: HostDescription,
    name: str,
    kind: VectorArithmetic,
    height: int,
    width: int,
    columns: int,
) -> str:
    module = LLVMModule(machine)
    heights = (height, 1) if height > 1 else (1,)
    widths = (width, columns % width) if columns % width else (width,)
    for high in heights:
        for wide in widths:
            _emit_group(module, kind, high, wide)
    f = LLVMFunction(module, name, ["ptr", "ptr", "i64", "i64"])
    bases, record, task, _ = f.params
    r = RecordReader(f, record)
    block = OutputBlock(f, r, task)
    rows_in, rows_out, columns_in, columns_out = (
        f.load(f.offset(r.loops(name)[0], 8), "i64")
        for name in ("rows_lhs", "rows_out", "columns_rhs", "columns_out")
    )
    inner = r["inner"]
    with block.products(bases) as (lhs, rhs, out, _):
        column = f.variable("i64", 0)
        for wide in widths:
            with emit_while_fits(f, column, wide, block.columns) as at:
                j = block.first_column + at
                right, there = f.offset(rhs, j * columns_in), f.offset(out, j * columns_out)
                row = f.variable("i64", 0)
                for high in heights:
                    with emit_while_fits(f, row, high, block.rows) as top:
                        i = block.first_row + top
                        left, to = f.offset(lhs, i * rows_in), f.offset(there, i * rows_out)
                        f.call(
                            f"group{high}x{wide}",
                            [inner, left, rows_in, right, columns_in, to, rows_out, columns_out],
                        )
    f.ret()
    return module.text()


def _emit_group(module: LLVMModule, kind: VectorArithmetic, height: int, width: int) -> None:
    """Emit `group(inner, lhs, row, rhs, column, out, out_row, out_column)`."""
    params = ["i64", "ptr readonly", "i64", "ptr readonly", "i64", "ptr noalias", "i64", "i64"]
    f = add_outlined_function(module, f"group{height}x{width}", params)
    inner, lhs, row, rhs, column, out, out_row, out_column = f.params
    many, places = kind.lanes, list(product(range(height), range(width)))
    sets = max(1, -(-MIN_ACCUMULATION_CHAINS // (len(places) * kind.planes)))
    sums = [{place: kind.new_accumulators(f) for place in places} for _ in range(sets)]
    rows = [f.variable("ptr", f.offset(lhs, row * i)) for i in range(height)]
    columns = [f.variable("ptr", f.offset(rhs, column * j)) for j in range(width)]

    def step(number: int, mask: LLVMValue | None = None) -> None:
        distance = number * many * kind.item
        right = [kind.read(f, f.offset(each.get(), distance), mask) for each in columns]
        swapped = [[b, kind.swap_complex_parts(f, b)] if kind.planes == 2 else [b] for b in right]
        for i, each in enumerate(rows):
            left = kind.read(f, f.offset(each.get(), distance), mask)
            for j, b in enumerate(swapped):
                kind.add(f, sums[number][i, j], [left] * kind.planes, b)

    def advance(count: int) -> None:
        for each in (*rows, *columns):
            each.set(f.offset(each.get(), count * many * kind.item))

    whole, vectors = inner - inner % (sets * many), inner - inner % many
    with f.loop(0, whole, sets * many):
        for number in range(sets):
            step(number)
        advance(sets)
    if sets > 1:
        with f.loop(whole, vectors, many):
            step(0)
            advance(1)
    with f.when(vectors.is_("slt", inner)):
        step(0, kind.mask(f, inner - vectors))
    totals, addresses = [], []
    for i, j in places:
        total = [each.get() for each in sums[0][i, j]]
        for others in sums[1:]:
            total = [a + b.get() for a, b in zip(total, others[i, j], strict=True)]
        totals.append(total)
        addresses.append(f.offset(f.offset(out, out_row * i), out_column * j))
    store_sums(f, kind, totals, addresses)
    f.ret()


def store_sums(
    f: LLVMFunction,
    kind: VectorArithmetic,
    totals: Sequence[list[LLVMValue]],
    addresses: Sequence[LLVMValue],
) -> None:
    """Add the lanes of each accumulator and store the results."""
    parts = add_lanes(f, [part for total in totals for part in _result_planes(f, kind, total)])
    for number, at in enumerate(addresses):
        kind.write(f, interleave_planes(f, parts[number * kind.planes :][: kind.planes]), at)


def _result_planes(
    f: LLVMFunction, kind: VectorArithmetic, sums: list[LLVMValue]
) -> list[LLVMValue]:
    """Return the planes of a result. The first accumulator of complex elements has products of
    equal parts, the second products of a real and an imaginary part."""
    if kind.planes == 1:
        return sums
    (real, imag), (across, back) = (kind.planes_of(f, each) for each in sums)
    return [real - imag, across + back]


def add_lanes(f: LLVMFunction, vectors: Sequence[LLVMValue]) -> list[LLVMValue]:
    """Return the sum of the lanes of each vector; vectors share the additions."""
    found, block, many = list(vectors), lane_count(vectors[0].type), 1
    # Each vector consists of blocks of lanes that are left to add, one for each of `many` vectors.
    while block > 1:
        block //= 2
        if len(found) == 1 and many == 1 and block == 1:
            return [_extract_lane(f, found[0], 0) + _extract_lane(f, found[0], 1)]
        pairs = list(zip(found[::2], (*found[1::2], found[-1]), strict=False))
        count = lane_count(found[0].type) * min(len(found), 2)
        many *= min(len(found), 2)
        found = [
            f.shuffle(a, b, [at for at in range(count) if at // block % 2 == 0])
            + f.shuffle(a, b, [at for at in range(count) if at // block % 2])
            for a, b in pairs
        ]
    return [_extract_lane(f, found[i // many], i % many) for i in range(len(vectors))]


def _extract_lane(f: LLVMFunction, x: LLVMValue, lane: int) -> LLVMValue:
    if lane_count(x.type) == 1:
        return x
    return f.emit(f"extractelement {x.type} {x}, i64 {lane}", element_type(x.type))
