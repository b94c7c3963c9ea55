"""Exchanges of rows before convolutions: halos, and exchanges that only resemble them."""

import pytest

from shardir import parse
from shardir.interpret.random_arguments import random_arguments
from tests.passes.whole_program.merge_comparison import merged, merged_difference, names
from tests.passes.whole_program.process_comparison import check_processes
from tests.programs.near_misses import disagreements

FOLDING = "merge-devices,cse,dce,fold-reductions,fold-views,cse,dce"
CONVOLUTION = """strides=[1, 1], padding=[[0, 0], [1, 1]], lhs_dilation=[1, 1], \
rhs_dilation=[1, 1], dims="b01f,01io->b01f\""""
TO_NEXT, TO_PREVIOUS = "[[0, 1], [1, 2], [2, 3]]", "[[1, 0], [2, 1], [3, 2]]"


def last_rows(count: int, rows: int = 3) -> str:
    """Return operations after which %p has the last rows of the previous device."""
    return f"""\
  %l = slice(%x, starts=[0, {rows - count}, 0, 0], strides=[1, 1, 1, 1]) : f32[2, {count}, 5, 3]
  %p = collective-permute(%l, axes=[b], pairs={TO_NEXT}) : f32[2, {count}, 5, 3]
"""


def first_rows(count: int, stride: int = 1, axis: str = "b") -> str:
    """Return operations after which %n has the first rows of the next device."""
    return f"""\
  %f = slice(%x, starts=[0, 0, 0, 0], strides=[1, {stride}, 1, 1]) : f32[2, {count}, 5, 3]
  %n = collective-permute(%f, axes=[{axis}], pairs={TO_PREVIOUS}) : f32[2, {count}, 5, 3]
"""


def convolve(joined: str, rows: int, out: int = 3) -> str:
    return f"""\
  %c = concatenate({joined}, dim=1) : f32[2, {rows}, 5, 3]
  %y = convolution(%c, %w, {CONVOLUTION}) : f32[2, {out}, 5, 2]"""


def program(operations: str, *, rows: int = 3, kernel: int = 3, out: int = 3) -> str:
    return f"""\
mesh @m = [b=4, a=4]

spmd func @main(
  %x: f32[2, {rows}, 5, 3] of f32[2, {4 * rows}@b, 5, 3],
  %w: f32[{kernel}, 3, 3, 2] of f32[{kernel}, 3, 3, 2],
) -> (f32[2, {out}, 5, 2] of f32[2, {4 * out}@b, 5, 2]) {{
{operations}
  return %y
}}
"""


BOTH = f"{last_rows(1)}{first_rows(1)}"
HALOS = {
    "rows of both neighbors": program(BOTH + convolve("%p, %x, %n", 5)),
    "rows of the next device": program(first_rows(2) + convolve("%x, %n", 5)),
    "rows of the previous device": program(last_rows(2) + convolve("%p, %x", 5)),
    "all rows of both neighbors": program(
        f"""\
  %p = collective-permute(%x, axes=[b], pairs={TO_NEXT}) : f32[2, 1, 5, 3]
  %n = collective-permute(%x, axes=[b], pairs={TO_PREVIOUS}) : f32[2, 1, 5, 3]
"""
        + convolve("%p, %x, %n", 3, 1),
        rows=1,
        out=1,
    ),
}
OTHERS = {
    "rows of the next device twice": program(first_rows(1) + convolve("%x, %n, %n", 5)),
    "rows of the next device twice behind rows of the previous one": program(
        BOTH + convolve("%p, %x, %n, %n", 6), kernel=4
    ),
    "every other row of the next device": program(first_rows(2, 2) + convolve("%x, %n", 5)),
    "results of another operation": program(
        f"""\
  %l = exp(%x) : f32[2, 3, 5, 3]
  %p = collective-permute(%l, axes=[b], pairs={TO_NEXT}) : f32[2, 3, 5, 3]
"""
        + convolve("%p, %x", 6),
        kernel=4,
    ),
    "rows of a device along renamed axes": program(
        "  %p = collective-permute(%x, source=[b], target=[a]) : f32[2, 3, 5, 3]\n"
        + convolve("%p, %x", 6),
        kernel=4,
    ).replace("f32[2, 3, 5, 2] of f32[2,", "f32[2, 3, 5, 2] of f32[8@a,"),
    "neighbors along two axes": program(
        last_rows(1) + first_rows(1, axis="a") + convolve("%p, %x, %n", 5)
    ).replace("f32[2, 3, 5, 2] of f32[2,", "f32[2, 3, 5, 2] of f32[8@a,"),
    "more rows than before": program(BOTH + convolve("%p, %x, %n", 5, 4), kernel=2, out=4),
    "images of the previous device": program(
        f"""\
  %p = collective-permute(%x, axes=[b], pairs={TO_NEXT}) : f32[2, 3, 5, 3]
  %c = concatenate(%p, %x, dim=0) : f32[4, 3, 5, 3]
  %v = convolution(%c, %w, {CONVOLUTION}) : f32[4, 3, 5, 2]
  %y = slice(%v, starts=[1, 0, 0, 0], strides=[1, 1, 1, 1]) : f32[2, 3, 5, 2]""",
        kernel=1,
    ),
    "rows with halos of the previous device": program(
        BOTH
        + f"""\
  %d = concatenate(%p, %x, %n, dim=1) : f32[2, 5, 5, 3]
  %m = slice(%d, starts=[0, 4, 0, 0], strides=[1, 1, 1, 1]) : f32[2, 1, 5, 3]
  %q = collective-permute(%m, axes=[b], pairs={TO_NEXT}) : f32[2, 1, 5, 3]
"""
        + convolve("%q, %d", 6),
        kernel=4,
    ),
    "rows and columns along one axis": program(
        BOTH
        + f"""\
  %d = concatenate(%p, %x, %n, dim=1) : f32[2, 5, 5, 3]
  %m = slice(%d, starts=[0, 0, 3, 0], strides=[1, 1, 1, 1]) : f32[2, 5, 2, 3]
  %q = collective-permute(%m, axes=[b], pairs={TO_NEXT}) : f32[2, 5, 2, 3]
  %c = concatenate(%q, %d, dim=2) : f32[2, 5, 7, 3]
  %y = convolution(%c, %w, {CONVOLUTION.replace("[1, 1]], lhs", "[0, 0]], lhs")}) \
: f32[2, 3, 5, 2]"""
    ),
    "rows with halos of a neighbor along another axis": program(
        BOTH
        + f"""\
  %d = concatenate(%p, %x, %n, dim=1) : f32[2, 5, 5, 3]
  %m = slice(%d, starts=[0, 4, 0, 0], strides=[1, 1, 1, 1]) : f32[2, 1, 5, 3]
  %q = collective-permute(%m, axes=[a], pairs={TO_NEXT}) : f32[2, 1, 5, 3]
"""
        + convolve("%q, %d", 6),
        kernel=4,
    ).replace("f32[2, 3, 5, 2] of f32[2,", "f32[2, 3, 5, 2] of f32[8@a,"),
    "padded rows": program(
        (BOTH + convolve("%p, %x, %n", 5)).replace("padding=[[0, 0]", "padding=[[1, 0]"), kernel=4
    ),
    "dilated rows": program(
        (BOTH + convolve("%p, %x, %n", 5)).replace("lhs_dilation=[1,", "lhs_dilation=[2,"),
        kernel=7,
    ),
    "filters of devices": program(BOTH + convolve("%p, %x, %n", 5)).replace(
        "of f32[3, 3, 3, 2]", "of f32[12@b, 3, 3, 2]"
    ),
}


@pytest.mark.parametrize("text", [*HALOS.values(), *OTHERS.values()], ids=[*HALOS, *OTHERS])
def test_only_halos_become_rows_of_the_global_array(text: str) -> None:
    program = parse(text)
    one = merged(program, FOLDING)
    assert not merged_difference(program, one, random_arguments(program, whole=True))
    assert (names(one.main) == ["convolution"]) == (text in HALOS.values())
    # Devices that hold the same images are one; no result is computed for other devices.
    devices = 16 if "8@a" in text else 4
    results = [op.result.type.size for op in one.main.body.walk() if op.name == "convolution"]
    (local,) = (op.result.type.size for op in program.main.body.ops if op.name == "convolution")
    assert results == [local * devices]


@pytest.mark.parametrize("text", HALOS.values(), ids=HALOS)
def test_exchanges_that_resemble_these_keep_their_results(text: str) -> None:
    found = disagreements(parse(text), FOLDING, merged_difference)
    assert not found, found[0]


@pytest.mark.parametrize("text", HALOS.values(), ids=HALOS)
def test_rows_of_other_processes_are_no_halos(text: str) -> None:
    check_processes(parse(text), "b:2")


def gradient(
    *, axes: str = "b", images: str = "12@b", cotangents: str = "12@b", stride: int = 1
) -> str:
    """Return the sum over devices of filter gradients, of images with halos."""
    out = 3 if stride == 1 else 2
    result = f"{out}, 3, 3, 2" if "b" in axes else f"{4 * out}@b, 3, 3, 2"
    return f"""\
mesh @m = [b=4, a=2]

spmd func @main(
  %x: f32[2, 3, 5, 3] of f32[2, {images}, 5, 3],
  %g: f32[2, 3, 5, 2] of f32[2, {cotangents}, 5, 2],
) -> (f32[{out}, 3, 3, 2] of f32[{result}]) {{
{BOTH}  %c = concatenate(%p, %x, %n, dim=1) : f32[2, 5, 5, 3]
  %v = convolution(%c, %g, strides=[{stride}, 1], padding=[[0, 0], [1, 1]], lhs_dilation=[1, 1], \
rhs_dilation=[1, 1], dims="f01b,i01o->01bf") : f32[{out}, 3, 3, 2]
  %y = all-reduce(%v, axes=[{axes}], op=add) : f32[{out}, 3, 3, 2]
  return %y
}}
"""


@pytest.mark.parametrize(
    ("text", "operations"),
    [
        (gradient(), ["convolution"]),
        (gradient(stride=2), ["convolution"]),
        (gradient(axes="b, a"), ["convolution", "constant", "mul"]),
        (gradient(cotangents="3"), ["broadcast", "reshape", "convolution"]),
        (gradient(images="3"), ["broadcast", "reshape", "convolution"]),
        # The sum is along another axis than the halos.
        (gradient(axes="a"), None),
    ],
)
def test_gradients_of_filters_are_one_convolution(text: str, operations: list[str] | None) -> None:
    program = parse(text)
    one = merged(program, FOLDING)
    assert not merged_difference(program, one, random_arguments(program, whole=True))
    if operations is None:
        assert "concatenate" in names(one.main)
    else:
        assert names(one.main) == operations
