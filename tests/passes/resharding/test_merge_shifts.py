"""`merge-shifts`: slices of padded values and rotated slices, along sharded dimensions."""

import pytest

from shardir.cost.communication import list_collectives
from shardir.passes import MergeShifts, Pipeline
from shardir.text.parser import parse
from tests.passes.sharded_evaluation import check_agreement

MESH = "mesh @m = [x=4]\n\n"


def run_merge_shifts(body: str, cut: str = "@x", result: str = "f32[8@x]") -> list[str]:
    """Return the program after the pass."""
    text = f"{MESH}func @f(%x: f32[8{cut}], %v: f32[]) -> ({result}) {{\n{body}  return %y\n}}\n"
    module = MergeShifts()(parse(text))
    check_agreement(module, "reshard,partition,dce")
    return [line.strip() for line in str(module).splitlines() if " = " in line and "@m" not in line]


PADDED = "  %p = pad(%x, %v, low=[{}], high=[{}], interior=[{}]) : f32[{}@x]\n"


def test_a_slice_of_a_pad_is_a_pad() -> None:
    slice = "  %y = slice(%p, starts=[2], strides=[1]) : f32[8@x]\n"
    assert run_merge_shifts(PADDED.format(3, 1, 0, 12) + slice)[1] == (
        "%y = pad(%x, %v, low=[1], high=[-1], interior=[0]) : f32[8@x]"
    )


@pytest.mark.parametrize(
    ("padded", "slice"),
    [
        ((1, 8, 0, 17), "starts=[0], strides=[2]"),
        ((0, 0, 1, 15), "starts=[1], strides=[1]"),
        ((0, 20, 0, 28), "starts=[15], strides=[1]"),
        ((20, 0, 0, 28), "starts=[5], strides=[1]"),
    ],
    ids=["strides", "interior", "after the operand", "before the operand"],
)
def test_other_slices_are_not_changed(padded: tuple[int, ...], slice: str) -> None:
    body = PADDED.format(*padded) + f"  %y = slice(%p, {slice}) : f32[8@x]\n"
    assert run_merge_shifts(body)[1].startswith("%y = slice(%p")


def rotated_slices(first: int, second: int, size: int, cut: str = "@x") -> str:
    return (
        f"  %a = slice(%x, starts=[{first}], strides=[1]) : f32[{size}]\n"
        f"  %b = slice(%x, starts=[{second}], strides=[1]) : f32[{8 - size}]\n"
        f"  %y = concatenate(%a, %b, dim=0) : f32[8{cut}]\n"
    )


def test_rotated_slices_are_a_roll() -> None:
    assert (
        run_merge_shifts(rotated_slices(5, 0, 3))[-1] == "%y = roll(%x, dim=0, shift=3) : f32[8@x]"
    )
    assert run_merge_shifts(rotated_slices(4, 0, 3))[-1].startswith("%y = concatenate")
    assert run_merge_shifts(rotated_slices(5, 1, 3))[-1].startswith("%y = concatenate")


@pytest.mark.parametrize(
    ("parts", "size"),
    [
        (["slice(%x, starts=[4], strides=[1])", "slice(%x, starts=[0], strides=[2])"], 4),
        (["slice(%x, starts=[4], strides=[1])", "slice(%v8, starts=[0], strides=[1])"], 4),
        (["slice(%x, starts=[3], strides=[1])", "slice(%x, starts=[0], strides=[1])"], 3),
        (["slice(%x, starts=[4], strides=[1])", "slice(%x, starts=[0], strides=[1])"] * 2, 4),
        (["slice(%x, starts=[4], strides=[1])", "broadcast(%v, dims=[])"], 4),
        (["slice(%x, starts=[4], strides=[1])"], 4),
    ],
    ids=["strides", "two values", "other size", "four parts", "another operation", "one part"],
)
def test_other_concatenations_are_not_changed(parts: list[str], size: int) -> None:
    body = "  %v8 = broadcast(%v, dims=[]) : f32[8@x]\n"
    body += "".join(f"  %s{i} = {part} : f32[{size}]\n" for i, part in enumerate(parts))
    total = f"f32[{len(parts) * size}@x]"
    names = ", ".join(f"%s{i}" for i in range(len(parts)))
    body += f"  %y = concatenate({names}, dim=0) : {total}\n"
    assert run_merge_shifts(body, result=total)[-1].startswith("%y = concatenate")


def test_the_parts_of_a_roll_are_slices_and_the_second_is_not_empty() -> None:
    negative = rotated_slices(0, 0, 8).replace("slice(%x, starts=[0], strides=[1])", "neg(%x)", 1)
    assert run_merge_shifts(negative)[-1].startswith("%y = concatenate")
    parameters = "  %y = concatenate(%x, %x, dim=0) : f32[16@x]\n"
    assert run_merge_shifts(parameters, result="f32[16@x]") == [parameters.strip()]
    assert run_merge_shifts(rotated_slices(0, 0, 8))[-1].startswith("%y = concatenate")


def test_unsharded_dimensions_are_not_changed() -> None:
    assert run_merge_shifts(rotated_slices(5, 0, 3, ""), "", "f32[8]")[-1].startswith(
        "%y = concatenate"
    )
    unsharded = "@-", "f32[8@-]"
    assert run_merge_shifts(rotated_slices(5, 0, 3, "@-"), *unsharded)[-1].startswith(
        "%y = concatenate"
    )
    padded = PADDED.format(3, 1, 0, 12).replace("@x", "@-")
    slice = "  %y = slice(%p, starts=[2], strides=[1]) : f32[8@-]\n"
    assert run_merge_shifts(padded + slice, *unsharded)[1].startswith("%y = slice")


@pytest.mark.parametrize(("cut", "result"), [("@-", "@x"), ("@x", "@-"), ("", "@x"), ("@x", "")])
def test_one_sharded_end_of_a_roll_suffices(cut: str, result: str) -> None:
    body = run_merge_shifts(rotated_slices(8, 0, 0, result), cut, f"f32[8{result}]")
    assert body[-1] == f"%y = roll(%x, dim=0, shift=0) : f32[8{result}]"


SENT = {
    "roll": (rotated_slices(5, 0, 3), [("collective-permute", 4), ("collective-permute", 4)]),
    "shift": (
        "  %p = pad(%x, %v, low=[1], high=[-1], interior=[0]) : f32[8@x]\n"
        "  %y = neg(%p) : f32[8@x]\n",
        [("collective-permute", 4)],
    ),
    "reverse": ("  %y = reverse(%x, dims=[0]) : f32[8@x]\n", [("collective-permute", 8)]),
    "running": ("  %y = cumsum(%x, dim=0, reverse=false) : f32[8@x]\n", [("all-gather", 16)]),
    "one row": (
        "  %a = slice(%x, starts=[3], strides=[1]) : f32[1]\n"
        "  %b = reshape(%a) : f32[]\n"
        "  %y = broadcast(%b, dims=[]) : f32[8@x]\n",
        [("all-reduce", 4)],
    ),
    "own rows": (
        "  %a = slice(%x, starts=[0], strides=[2]) : f32[4@x]\n"
        "  %p = pad(%a, %v, low=[0], high=[1], interior=[1]) : f32[8@x]\n"
        "  %y = neg(%p) : f32[8@x]\n",
        [],
    ),
}


@pytest.mark.parametrize("name", SENT)
def test_bytes_sent_by_devices(name: str) -> None:
    body, expected = SENT[name]
    text = f"{MESH}func @f(%x: f32[8@x], %v: f32[]) -> (f32[8@x]) {{\n{body}  return %y\n}}\n"
    program = Pipeline.parse("merge-shifts,reshard,partition,cse,dce")(parse(text))
    assert sorted((c.kind, c.nbytes) for c in list_collectives(program)) == expected


@pytest.mark.parametrize("reverse", ["false", "true"])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
@pytest.mark.parametrize("size", [11, 12, 30])
def test_cumulative_operations_over_many_devices(size: int, name: str, reverse: str) -> None:
    """With more than eight devices the prefix sums take steps of doubling distance."""
    text = (
        f"mesh @m = [x=12]\n\nfunc @f(%x: f32[{size}@x]) -> (f32[{size}@x]) {{\n"
        f"  %y = {name}(%x, dim=0, reverse={reverse}) : f32[{size}@x]\n  return %y\n}}\n"
    )
    module = parse(text)
    check_agreement(module, "partition,dce")
    program = Pipeline.parse("partition,dce")(module)
    assert [c.kind for c in list_collectives(program)] == ["collective-permute"] * 5
