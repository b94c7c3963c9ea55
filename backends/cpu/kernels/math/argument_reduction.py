"""Reduction of large arguments of sin and cos modulo pi/2, with as many bits of 2/pi as necessary.

x ln 2 is reduced as well, by bits of 2 ln(2) / pi: the rounded product would be meaningless for
large x. M. Payne and R. Hanek, "Radian reduction for trigonometric functions", SIGNUM Newsletter 18
(1983). x = m 2^e times 2/pi, modulo 4, needs the bits of 2/pi with weights between 2^(1-e) and the
required precision: 192 of them, from a table. Lanes are reduced one by one, since large arguments
are rare.
"""

from math import pi

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    element_type,
    lane_count,
)
from shardir.backends.cpu.kernels.math.vector_arithmetic import absolute_value, any_of

REDUCE_SYMBOL = "shardir_reduce"
REDUCE_LN2_SYMBOL = "shardir_reduce_ln2"
"""The function that reduces x ln 2 instead of x."""
BITS_OF_TWO_OVER_PI = (
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea"
    "09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b"
    "1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f7"
    "8a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361d"
)
"""The first 1280 fraction bits."""
LEADING_ZERO_BITS = 64
"""Leading zeros of the table."""
ReducedArgument = tuple[LLVMValue, LLVMValue, LLVMValue]


def reduce_large(
    x: LLVMValue, far: float, near: ReducedArgument, name: str = REDUCE_SYMBOL
) -> ReducedArgument:
    """Return (r, low, k) of x = k pi/2 + r + low: `near`, but for lanes with |x| >= `far`.

    `far` is at least 2^17, and k is correct modulo 4. If rare lanes are computed out of line, all
    lanes are `near`.
    """
    f, count = x.function, lane_count(x.type)
    if f.cold_path is not None:
        return near
    r, low, k = (f.variable(each.type, each) for each in near)
    with f.when(any_of(f, absolute_value(x).is_("uge", far)), seldom=True):
        _define_scalar_reduction(f.module, name)
        large = absolute_value(x).is_("oge", far) & absolute_value(x).is_("one", float("inf"))
        given, chosen = f.variable(x.type, x), f.variable(f"[{count} x i8]")
        copies = tuple(f.variable(each.type, each) for each in near)
        for lane in range(count):
            bit = f.emit(f"extractelement {large.type} {large}, i64 {lane}", "i1")
            f.store(bit.to("i8", "zext"), f.offset(chosen.address, lane))
        # A variable whose address is used stays in memory, so only these copies do.
        to = (copies[0].address, copies[1].address, copies[2].address)
        with f.loop(0, count) as i:
            is_large = f.load(f.offset(chosen.address, i), "i8").is_("ne", 0)
            with f.when(is_large):
                _emit_reduce_lane(f, name, given.address, to, element_type(x.type), i)
        for copy, place in zip(copies, (r, low, k), strict=True):
            place.set(copy.get())
    return r.get(), low.get(), k.get()


def _emit_reduce_lane(
    f: LLVMFunction, name: str, x: LLVMValue, to: ReducedArgument, kind: str, lane: LLVMValue
) -> None:
    """Reduce one lane, in f64."""
    one = f.load(f.offset(x, lane, kind), kind)
    parts = f.variable("[3 x double]")
    f.call(name, [one if kind == "double" else one.to("double", "fpext"), parts.address])
    high, low = (f.load(f.offset(parts.address, 8 * i), "double") for i in (0, 1))
    k = f.load(f.offset(parts.address, 16), "i64")
    whole = "i64" if kind == "double" else "i32"
    if kind == "float":
        total, k = high + low, k.to("i32", "trunc")
        high = total.to(kind, "fptrunc")
        low = (total - high.to("double", "fpext")).to(kind, "fptrunc")
    for value, place, type in zip((high, low, k), to, (kind, kind, whole), strict=True):
        f.store(value, f.offset(place, lane, type))


def table_number(name: str) -> int:
    """Return 2 / pi, times ln 2 for that symbol, as an integer multiple of 2^-1280."""
    number = int(BITS_OF_TWO_OVER_PI, 16)
    if name == REDUCE_LN2_SYMBOL:
        number = number * sum((1 << 1344) // (k << k) for k in range(1, 1344)) >> 1344
    return number


def _define_scalar_reduction(module: LLVMModule, name: str) -> None:
    """Define `void (double x, ptr to)`, which writes r and low as f64, k as i64."""
    if any(each.name == name for each in module.functions):
        return
    number, table = table_number(name), f"{name}_bits"
    words = [0, *((number >> (1280 - 64 * (i + 1))) & (2**64 - 1) for i in range(20))]
    module.table(table, "i64", words)
    f = LLVMFunction(
        module, name, ["double", "ptr"], "void", "noinline cold nounwind", internal=True
    )
    x, to = f.params
    bits = x.to("i64", "bitcast")
    exponent = ((bits >> 52) & 0x7FF) - 1075
    mantissa = (bits & (2**52 - 1)) | 2**52
    # The first significant bit has the weight 2^(1-e); it is fraction bit e - 2 of the table.
    first = exponent - 2 + LEADING_ZERO_BITS
    bits_there = LLVMValue(f"@{table}", "ptr", f)
    read = [f.load(f.offset(bits_there, (first >> 6) + i, "i64"), "i64") for i in range(4)]
    by = first & 63
    window = [f.intrinsic("fshl", read[i], read[i + 1], by) for i in range(3)]
    wide = [word.to("i128", "zext") * mantissa.to("i128", "zext") for word in window]
    whole = (wide[0] << 64) + wide[1] + (wide[2] >> 64)
    quadrant = (whole >> 126).to("i64", "trunc")
    fraction = whole << 2
    negative = fraction.is_("slt", 0)
    k = quadrant + negative.to("i64", "zext")
    distance = f.select(negative, -fraction, fraction)
    zeros = f.intrinsic("ctlz", distance, LLVMValue("false", "i1", f))
    distance = f.emit(f"shl i128 {distance}, {zeros}", "i128")
    top = (distance >> 64).to("i64", "trunc")
    rest = distance.to("i64", "trunc")
    high = (top >> 11).to("double", "uitofp") * 2.0**-53
    low = (((top & 0x7FF) << 52) | (rest >> 12)).to("double", "uitofp") * 2.0**-116
    low = f.select(distance.is_("eq", 0), 0.0, low)
    scale = ((1023 - zeros.to("i64", "trunc")) << 52).to("double", "bitcast")
    scale = f.select(negative ^ x.is_("olt", 0.0), -scale, scale)
    product = high * (pi / 2)
    lost = f.fma(high, pi / 2, -product)
    more = f.fma(high, 6.123233995736766e-17, f.fma(low, pi / 2, lost))
    r = product + more
    f.store(r * scale, to)
    f.store((more - (r - product)) * scale, f.offset(to, 8))
    f.store(f.select(x.is_("olt", 0.0), -k, k), f.offset(to, 16))
    f.ret()
