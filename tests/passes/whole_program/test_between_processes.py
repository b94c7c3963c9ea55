"""Permutes along axes inside of processes and between them, and started collectives."""

import numpy as np
import pytest

from shardir import parse
from shardir.errors import MergeError
from shardir.extend import define_op
from shardir.ir.module import Module
from shardir.ir.operation import OPS
from tests.passes.processes import run_verified_passes
from tests.passes.whole_program.process_comparison import check_processes, programs_of_processes
from tests.registries import restored_registries

PERMUTE = """\
mesh @m = [x=X, y=Y]

spmd func @main(
  %x: f32[2] of f32[SIZE@(x, y)],
) -> (f32[2] of f32[SIZE@(x, y)]) {
  %y = collective-permute(%x, axes=[x, y], pairs=PAIRS) : f32[2]
  return %y
}
"""


def permute(pairs: list[list[int]], x: int = 4, y: int = 2) -> Module:
    text = PERMUTE.replace("SIZE", str(2 * x * y)).replace("PAIRS", str(pairs))
    return parse(text.replace("=X", f"={x}").replace("=Y", f"={y}"))


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("across", ["x:2", "x:4", "x:2/y:2"])
def test_random_permutes(seed: int, across: str) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 9))
    sources, targets = (rng.permutation(8)[:count].tolist() for _ in range(2))
    check_processes(permute([list(pair) for pair in zip(sources, targets, strict=True)]), across)


ROWS = {
    # Both rows of each process move to the next process.
    "whole processes": [[0, 2], [1, 3], [2, 4], [3, 5], [4, 6], [5, 7], [6, 0], [7, 1]],
    # A row stays in all processes, and another one moves.
    "one row stays": [[0, 0], [2, 2], [4, 4], [6, 6], [1, 3], [3, 5], [5, 7], [7, 1]],
    # A row stays in some processes only.
    "one row stays in two processes": [[0, 0], [2, 2], [4, 6], [6, 4]],
    # Rows are exchanged inside of two processes, and between the other ones.
    "some processes exchange rows": [[0, 1], [1, 0], [2, 3], [3, 2], [4, 7], [7, 4]],
    # A device gets the row of another process, where other devices keep theirs.
    "rows of two sources": [[0, 3], [4, 5], [6, 7], [2, 1]],
    "one device": [[5, 5]],
    "one row moves in its process": [[4, 5]],
}


@pytest.mark.parametrize("pairs", ROWS.values(), ids=ROWS)
def test_rows_that_stay_and_rows_that_are_sent(pairs: list[list[int]]) -> None:
    check_processes(permute(pairs), "x:4")


def test_a_row_that_stays_in_its_process_is_not_sent() -> None:
    made = check_processes(permute(ROWS["one row stays"]), "x:4")
    assert "select" not in [op.name for op in made.main.body.ops]
    sent = [op for op in made.main.body.ops if op.spec.collective and op.name != "all-slice"]
    assert [op.operands[0].type.shape for op in sent] == [(1, 2)]


def test_rows_of_one_process_are_not_sent() -> None:
    made = check_processes(permute(ROWS["one row moves in its process"]), "x:4")
    assert "collective-permute" not in [op.name for op in made.main.body.ops]


def test_a_process_knows_whether_it_keeps_a_row() -> None:
    program = permute(ROWS["one row stays in two processes"])
    grouped, placed = programs_of_processes(program, "x:4")
    assert "all-slice" in [op.name for op in grouped[0].main.body.ops]
    for each in placed:
        assert "all-slice" not in [op.name for op in each.main.body.ops]


def test_rows_without_another_source_need_no_selection() -> None:
    made = check_processes(permute([[0, 2], [1, 3]]), "x:4")
    assert "select" not in [op.name for op in made.main.body.ops]
    # The row is sent to some processes and stays in others.
    made = check_processes(permute([[0, 2], [4, 4]]), "x:4")
    assert "select" in [op.name for op in made.main.body.ops]


STARTED = """\
mesh @m = [x=4]

spmd func @main(
  %x: f32[3] of f32[12@x],
) -> (f32[3] of f32[12@x], f32[3] of f32[12@x]) {
  %s = all-reduce-start(%x, axes=[x:(2)2], op=add) : f32[3]
  %t = all-reduce-start(%x, axes=[x:(1)2], op=add) : f32[3]
  %y = done(%s) : f32[3]
  %z = done(%t) : f32[3]
  return %y, %z
}
"""


def test_only_collectives_between_processes_are_awaited() -> None:
    """The other one is a sum over the devices of the process."""
    made = check_processes(parse(STARTED), "x:2")
    assert [op.name for op in made.main.body.ops if op.name in ("done", "sum")] == ["sum", "done"]


def test_keys_that_are_not_sent() -> None:
    text = PERMUTE.replace("f32", "key").replace("SIZE", "8").replace("PAIRS", "[[0, 2], [1, 1]]")
    program = parse(text.replace("=X", "=2").replace("=Y", "=2"))
    with pytest.raises(MergeError) as error:
        run_verified_passes("merge-devices{across=x:2}", program)
    assert str(error.value).partition("\n")[0] == (
        "%y = collective-permute leaves some devices without a random key; run the program without "
        "the pass merge-devices"
    )


def test_an_exchange_without_a_rule_is_refused() -> None:
    with restored_registries():
        exchange = OPS["all-reduce"].exchange
        define_op("only-here", type=lambda x, *, result: x, spmd=True, exchange=exchange)
        program = parse("""\
mesh @m = [x=4]

spmd func @main(%x: f32[2] of f32[8@x]) -> (f32[2] of f32[8@x]) {
  %y = only-here(%x) : f32[2]
  return %y
}
""")
        with pytest.raises(MergeError) as error:
            run_verified_passes("merge-devices{across=x:2}", program)
    assert str(error.value).partition("\n")[0] == (
        "%y = only-here has no meaning outside of devices; run the program without the pass "
        "merge-devices"
    )
