"""Programs whose groups use all kinds of kernels."""

from shardir import ops as ops  # declares the operations

SOFTMAX = """\
func @softmax(%x: {dtype}[{n}, {m}]) -> ({dtype}[{n}, {m}]) {{
  %m = max(%x, dims=[{dim}]) : {dtype}[{left}]
  %mb = broadcast(%m, dims=[{kept}]) : {dtype}[{n}, {m}]
  %s = sub(%x, %mb) : {dtype}[{n}, {m}]
  %e = exp(%s) : {dtype}[{n}, {m}]
  %z = sum(%e, dims=[{dim}]) : {dtype}[{left}]
  %zb = broadcast(%z, dims=[{kept}]) : {dtype}[{n}, {m}]
  %y = div(%e, %zb) : {dtype}[{n}, {m}]
  return %y
}}
"""


LAYER_NORM = """\
func @layer_norm(%x: f32[2, 6, 40], %g: f32[40], %b: f32[40]) -> (f32[2, 6, 40], f32[2, 6]) {
  %n = constant(value=40.0) : f32[2, 6]
  %s = sum(%x, dims=[2]) : f32[2, 6]
  %mean = div(%s, %n) : f32[2, 6]
  %meanb = broadcast(%mean, dims=[0, 1]) : f32[2, 6, 40]
  %c = sub(%x, %meanb) : f32[2, 6, 40]
  %q = mul(%c, %c) : f32[2, 6, 40]
  %v = sum(%q, dims=[2]) : f32[2, 6]
  %var = div(%v, %n) : f32[2, 6]
  %eps = constant(value=1e-05) : f32[2, 6]
  %ve = add(%var, %eps) : f32[2, 6]
  %r = rsqrt(%ve) : f32[2, 6]
  %rb = broadcast(%r, dims=[0, 1]) : f32[2, 6, 40]
  %h = mul(%c, %rb) : f32[2, 6, 40]
  %gb = broadcast(%g, dims=[2]) : f32[2, 6, 40]
  %bb = broadcast(%b, dims=[2]) : f32[2, 6, 40]
  %hg = mul(%h, %gb) : f32[2, 6, 40]
  %y = add(%hg, %bb) : f32[2, 6, 40]
  return %y, %r
}
"""


BATCH_NORM = """\
func @batch_norm(%x: f32[3, 5, 6, 7], %g: f32[5]) -> (f32[3, 5, 6, 7]) {
  %q = mul(%x, %x) : f32[3, 5, 6, 7]
  %s = sum(%q, dims=[0, 2, 3]) : f32[5]
  %r = rsqrt(%s) : f32[5]
  %rg = mul(%r, %g) : f32[5]
  %rb = broadcast(%rg, dims=[1]) : f32[3, 5, 6, 7]
  %y = mul(%x, %rb) : f32[3, 5, 6, 7]
  return %y
}
"""


BROADCASTS = """\
func @broadcasts(
  %x: f32[3, 4, 5, 6],
  %b: f32[5],
  %s: f32[3],
  %t: f32[4, 6],
) -> (f32[3, 4, 5, 6]) {
  %bb = broadcast(%b, dims=[2]) : f32[3, 4, 5, 6]
  %sb = broadcast(%s, dims=[0]) : f32[3, 4, 5, 6]
  %tb = broadcast(%t, dims=[1, 3]) : f32[3, 4, 5, 6]
  %i = iota(dim=2) : f32[3, 4, 5, 6]
  %0 = add(%x, %bb) : f32[3, 4, 5, 6]
  %1 = mul(%0, %sb) : f32[3, 4, 5, 6]
  %2 = sub(%1, %tb) : f32[3, 4, 5, 6]
  %3 = add(%2, %i) : f32[3, 4, 5, 6]
  return %3
}
"""


COLUMNS = """\
func @columns(%x: f32[50, 20], %w: f32[20]) -> (f32[20], f32[50, 20], f32[20]) {
  %q = mul(%x, %x) : f32[50, 20]
  %s = sum(%q, dims=[0]) : f32[20]
  %m = max(%x, dims=[0]) : f32[20]
  %y = mul(%s, %w) : f32[20]
  %z = sub(%y, %m) : f32[20]
  return %z, %q, %m
}
"""


LOSS = """\
func @loss(%x: bf16[30, 41], %y: bf16[30, 41]) -> (f32[]) {
  %a = convert(%x) : f32[30, 41]
  %b = convert(%y) : f32[30, 41]
  %d = sub(%a, %b) : f32[30, 41]
  %q = mul(%d, %d) : f32[30, 41]
  %s = sum(%q, dims=[0, 1]) : f32[]
  %n = constant(value=1230.0) : f32[]
  %l = div(%s, %n) : f32[]
  return %l
}
"""


COUNTED = """\
func @counted(%x: f32[9], %y: f32[7]) -> (i32[7]) {
  %xb = broadcast(%x, dims=[1]) : f32[7, 9]
  %yb = broadcast(%y, dims=[0]) : f32[7, 9]
  %l = lt(%xb, %yb) : bool[7, 9]
  %n = ne(%yb, %yb) : bool[7, 9]
  %m = eq(%xb, %xb) : bool[7, 9]
  %a = and(%n, %m) : bool[7, 9]
  %o = or(%l, %a) : bool[7, 9]
  %i = convert(%o) : i32[7, 9]
  %s = sum(%i, dims=[1]) : i32[7]
  return %s
}
"""


CHAIN = """\
func @chain(%x: f32[8, 4, 128], %b: f32[4, 128], %s: f32[]) -> (f32[8, 4, 128]) {
  %bb = broadcast(%b, dims=[1, 2]) : f32[8, 4, 128]
  %sb = broadcast(%s, dims=[]) : f32[8, 4, 128]
  %a = add(%x, %bb) : f32[8, 4, 128]
  %c = mul(%a, %sb) : f32[8, 4, 128]
  return %c
}
"""


SCALARS = """\
func @scalars(
  %p: bool[],
  %x: f32[6, 40],
  %y: f32[6, 40],
  %l: f32[],
  %h: f32[6, 40],
) -> (f32[6, 40], f32[6]) {
  %s = select(%p, %x, %y) : f32[6, 40]
  %c = clamp(%l, %s, %h) : f32[6, 40]
  %e = sub(%c, %x) : f32[6, 40]
  %r = sum(%e, dims=[1]) : f32[6]
  return %e, %r
}
"""


SINGLE = """\
func @single(%x: f32[1, 1], %y: f32[]) -> (f32[1, 1]) {
  %yb = broadcast(%y, dims=[]) : f32[1, 1]
  %a = add(%x, %yb) : f32[1, 1]
  %b = mul(%a, %a) : f32[1, 1]
  return %b
}
"""


NAMES = """\
func @names(%row: f32[40, 20], %mask: f32[20]) -> (f32[40, 20], f32[20], f32[20]) {
  %start = mul(%row, %row) : f32[40, 20]
  %column = sum(%start, dims=[0]) : f32[20]
  %part = max(%row, dims=[0]) : f32[20]
  %first = mul(%column, %mask) : f32[20]
  %row_mask = sub(%first, %part) : f32[20]
  %column_mask = mul(%row_mask, %part) : f32[20]
  return %start, %row_mask, %column_mask
}
"""


MASK = """\
func @mask() -> (f32[5, 7]) {
  %i = iota(dim=0) : i32[5, 7]
  %j = iota(dim=1) : i32[5, 7]
  %c = ge(%i, %j) : bool[5, 7]
  %m = convert(%c) : f32[5, 7]
  return %m
}
"""


def softmax(dtype: str, n: int, m: int, dim: int) -> str:
    left = (n, m)[1 - dim]
    return SOFTMAX.format(dtype=dtype, n=n, m=m, dim=dim, kept=1 - dim, left=left)


PROGRAMS = {
    "row softmax": softmax("f32", 10, 24, 1),
    "row softmax of bf16": softmax("bf16", 4, 100, 1),
    "column softmax": softmax("f32", 7, 20, 0),
    "column softmax of many rows": softmax("f16", 50, 12, 0),
    "softmax of f64": softmax("f64", 3, 90, 1),
    "layer norm": LAYER_NORM,
    "batch norm": BATCH_NORM,
    "broadcasts": BROADCASTS,
    "columns": COLUMNS,
    "loss": LOSS,
    "flat chain": CHAIN,
    "scalars": SCALARS,
    "names of kernels": NAMES,
    "one element": SINGLE,
    "no operands": MASK,
    "counted": COUNTED,
}


REDUCTION_CASES = {
    "rows": ((3, 2, 40), (2,)),
    "short rows": ((20, 5), (1,)),
    "columns": ((30, 12), (0,)),
    "between": ((2, 20, 5), (1,)),
    "around": ((8, 2, 9), (0, 2)),
    "everything": ((9, 70), (0, 1)),
}
