"""Data movement: views wherever torch supports them."""

from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.rules.arithmetic import as_word, back
from shardir.backends.gpu.spelling import full_text, listed, sizes
from shardir.backends.gpu.writer import Writer
from shardir.ir.module import Op


@lowers("broadcast", lazy=True)
def _broadcast(w: Writer, op: Op) -> str:
    (x,), dims, to = op.operands, op.attrs["dims"], op.result.type
    number = w.number(x)
    if number is not None:
        return full_text(to.shape, number, to.dtype)
    name = w.name(x)
    if dims == tuple(range(to.rank - x.type.rank, to.rank)):
        return f"{name}.expand({sizes(to.shape)})"
    aligned = [1] * to.rank
    for size, dim in zip(x.type.shape, dims, strict=True):
        aligned[dim] = size
    shown = f"{name}.reshape({sizes(aligned)})"
    return shown if tuple(aligned) == to.shape else f"{shown}.expand({sizes(to.shape)})"


@lowers("reshape")
def _reshape(w: Writer, op: Op, x: str) -> str:
    return f"{x}.reshape({sizes(op.result.type.shape)})"


@lowers("transpose")
def _transpose(w: Writer, op: Op, x: str) -> str:
    perm = op.attrs["perm"]
    if perm == (1, 0):
        return f"{x}.T"
    return f"{x}.permute({sizes(perm)})" if perm else x


@lowers("reverse")
def _reverse(w: Writer, op: Op, x: str) -> str:
    dims = op.attrs["dims"]
    word = as_word(w, op.operands[0])
    return back(f"torch.flip({word}, {listed(dims)})", op.result.type.dtype)


@lowers("roll")
def _roll(w: Writer, op: Op, x: str) -> str:
    word = as_word(w, op.operands[0])
    turned = f"torch.roll({word}, {op.attrs['shift']}, dims={op.attrs['dim']})"
    return back(turned, op.result.type.dtype)


@lowers("concatenate")
def _concatenate(w: Writer, op: Op, *xs: str) -> str:
    words = ", ".join(as_word(w, value) for value in op.operands)
    return back(f"torch.cat([{words}], dim={op.attrs['dim']})", op.result.type.dtype)
