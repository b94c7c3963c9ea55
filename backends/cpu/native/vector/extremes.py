"""The larger and the smaller of floats: NaN if one is, and +0 above -0."""

from shardir.backends.cpu.native.llvm.target import architecture, host
from shardir.backends.cpu.native.llvm.text import Function, Value, element, lanes, vector


def extreme(f: Function, op: str, a: Value, b: Value, numbers: bool = False) -> Value:
    """`max` or `min` of two vectors; `numbers`: none is NaN.

    Where the processor has no such instruction, comparisons make it: of equal numbers, and of a
    number and NaN, one gives one operand this way round and the other that way round. The bits of
    both joined are NaN of NaN and anything; of two zeros the sign is that of both (for `max`) or of
    any, and of other numbers both are the same.
    """
    if architecture(host().triple) != "x86_64":
        return f.intrinsic("maximum" if op == "max" else "minimum", a, b)
    further = "ogt" if op == "max" else "olt"
    one = f.select(a.is_(further, b), a, b)
    other = f.select(b.is_(further, a), b, a)
    width = 32 if element(a.type) == "float" else 64
    bits = vector(f"i{width}", lanes(a.type))
    whole, rest = one.to(bits, "bitcast"), other.to(bits, "bitcast")
    if op == "min":
        return (whole | rest).to(a.type, "bitcast")
    both = whole & rest
    if not numbers:
        both = both | ((whole | rest) & ((1 << width - 1) - 1))
    return both.to(a.type, "bitcast")
