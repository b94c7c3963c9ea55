"""The messages that compare the inputs of a call; most tests run in one process."""

from itertools import product
from pathlib import Path

import pytest

from shardir import parse
from shardir.backends.distributed.input_check import (
    MISMATCH,
    Links,
    carriers_of,
    combine_states,
    dissemination_rounds,
)
from shardir.ir.module import Block, Op
from tests.backends.distributed import replicated_inputs
from tests.backends.distributed.launched_job import launch_job

pytestmark = pytest.mark.sample(3)

ONE, TWO = b"1" * 16, b"2" * 16

PROGRAM = """
mesh @mesh = [x=2, y=2]

spmd func @f(
  %a: f32[4] of f32[4],
) -> (f32[4] of f32[4]) {
  %along_x = all-reduce(%a, axes=[x], op=add) : f32[4]
  %along_y = all-reduce(%along_x, axes=[y], op=add) : f32[4]
  %again = all-reduce(%along_y, axes=[x], op=max) : f32[4]
  return %again
}
"""


def body() -> Block:
    return parse(PROGRAM).main.body


def ring_links(*processes: int) -> Links:
    pairs = zip(processes, (*processes[1:], processes[0]), strict=True)
    return frozenset(pairs)


def group_links(*groups: tuple[int, ...]) -> Links:
    return frozenset((a, b) for group in groups for a, b in product(group, group) if a != b)


def carrier_names(links: list[Links], count: int) -> list[str]:
    ops = body().ops
    block = Block((), ops, ())
    links_by_op = dict(zip(ops, links, strict=False))
    return [op.result.name for op in carriers_of(block, links_by_op, range(count))]


def test_states_combine_to_equal_or_mismatch() -> None:
    assert combine_states(ONE, []) == ONE
    assert combine_states(ONE, [ONE, ONE]) == ONE
    assert combine_states(ONE, [ONE, TWO]) == MISMATCH
    assert combine_states(ONE, [MISMATCH]) == MISMATCH
    assert combine_states(MISMATCH, [ONE]) == MISMATCH


@pytest.mark.parametrize("count", range(1, 18))
def test_dissemination_reaches_all_processes(count: int) -> None:
    processes = [3 * process for process in range(count)]
    plans = {process: list(dissemination_rounds(processes, process)) for process in processes}
    reached = {process: {process} for process in processes}
    for number in range((count - 1).bit_length()):
        before = {process: set(known) for process, known in reached.items()}
        for process in processes:
            target, source = plans[process][number]
            assert plans[target][number][1] == process
            reached[process] |= before[source]
    assert all(known == set(processes) for known in reached.values())
    assert all(len(plan) == (count - 1).bit_length() for plan in plans.values())


def test_the_first_collective_carries_digests_if_it_connects_all_processes() -> None:
    everyone = group_links((0, 1, 2, 3))
    assert carrier_names([everyone, everyone, everyone], 4) == ["along_x"]
    assert carrier_names([ring_links(0, 1), everyone], 2) == ["along_x"]


def test_several_collectives_carry_digests_if_only_together_they_connect_all() -> None:
    rows, columns = group_links((0, 1), (2, 3)), group_links((0, 2), (1, 3))
    assert carrier_names([rows, columns, rows], 4) == ["along_x", "along_y"]
    assert carrier_names([rows, rows, columns], 4) == ["along_x", "again"]
    assert carrier_names([ring_links(0, 1, 2)] * 3, 3) == ["along_x", "along_y"]


def test_no_collective_carries_digests_if_processes_stay_unconnected() -> None:
    rows = group_links((0, 1), (2, 3))
    assert carrier_names([rows, rows, rows], 4) == []
    assert carrier_names([frozenset({(0, 1)})] * 3, 2) == []
    assert carrier_names([], 2) == []


def test_no_collective_carries_digests_after_a_data_dependent_branch() -> None:
    module = parse(
        """
        mesh @mesh = [x=2]

        spmd func @f(
          %a: f32[4] of f32[4],
          %n: i32[] of i32[],
        ) -> (f32[4] of f32[4]) {
          %c = case(%n) : f32[4] {
            %s = all-reduce(%a, axes=[x], op=add) : f32[4]
            yield %s
          } {
            yield %a
          }
          %t = all-reduce(%c, axes=[x], op=max) : f32[4]
          return %t
        }
        """
    )
    ops: list[Op] = [op for op in module.main.body.walk() if op.spec.collective]
    links = dict.fromkeys(ops, group_links((0, 1)))
    assert carriers_of(module.main.body, links, (0, 1)) == ()


@pytest.mark.parametrize("count", [3, pytest.param(4, marks=pytest.mark.long)])
def test_differing_inputs_are_rejected_in_all_processes(count: int, tmp_path: Path) -> None:
    done = launch_job(
        count, "-m", "tests.backends.distributed.replicated_inputs", folder=tmp_path
    ).check()
    assert done.out == [f"all {len(replicated_inputs.CHECKS)}\n"] * count
