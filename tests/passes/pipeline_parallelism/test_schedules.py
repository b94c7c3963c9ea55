"""Pipeline schedules: torch's orders and notation, transfers, and the errors of wrong schedules."""

import hashlib

import pytest

from shardir.passes.pipeline_parallelism.actions import PipelineScheduleError, parse_action
from shardir.passes.pipeline_parallelism.lanes import lanes_of
from shardir.passes.pipeline_parallelism.named_schedules import NAMED_SCHEDULES, make_schedule
from shardir.passes.pipeline_parallelism.progress import SendMode, verify_schedule
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule
from shardir.passes.pipeline_parallelism.simulation import (
    PassTimes,
    simulate_schedule,
    without_transfers,
)
from shardir.passes.pipeline_parallelism.transfers import add_transfers
from tests.passes.pipeline_parallelism.torch_schedules import CLASSES, torch_csv, torch_rows

LONG = pytest.mark.long


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("ranks", [2, 4, pytest.param(8, marks=LONG)])
@pytest.mark.parametrize("rounds", [1, 2, pytest.param(4, marks=LONG)])
def test_orders_are_those_of_torch(name: str, ranks: int, rounds: int) -> None:
    pytest.importorskip("torch.distributed.pipelining")
    microbatches = ranks * rounds
    if name == "dualpipev" and rounds == 1:
        pytest.skip("DualPipeV needs two microbatches for each rank")
    ours = make_schedule(name, ranks=ranks, microbatches=microbatches)
    theirs = torch_rows(name, ranks, microbatches)
    if name == "1f1b":
        # torch 2.13 numbers the forward passes of the last rank from 1.
        theirs[-1] = [
            text if "F" not in text else f"{ranks - 1}F{int(text.partition('F')[2]) - 1}"
            for text in theirs[-1]
        ]
    assert [[str(action) for action in row] for row in ours.rows] == theirs


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gpipe", 160),
        ("1f1b", 160),
        ("interleaved-1f1b", 352),
        ("looped-bfs", 352),
        ("interleaved-zero-bubble", 416),
        ("zbv", 384),
        ("dualpipev", 317),
    ],
)
def test_transfers_are_as_many_as_those_of_torch(name: str, count: int) -> None:
    """torch's `_add_send_recv` gives these numbers for 4 ranks and 8 microbatches."""
    schedule = make_schedule(name, ranks=4, microbatches=8)
    complete = add_transfers(schedule)
    assert sum(map(len, complete.rows)) == count
    assert without_transfers(complete) == schedule
    for sends in SendMode:
        verify_schedule(complete, sends)


def test_the_text_is_read_and_printed_unchanged() -> None:
    text = (
        "0F0,0SEND_F0,,0RECV_B0,0I0,0W0,0UNSHARD,0RESHARD,0REDUCE_GRAD\n"
        "1RECV_F0,1F0,1B0,1SEND_B0,(1F1;1B2)OVERLAP_F_B\n"
    )
    assert PipelineSchedule.parse(text).to_csv() == text


# The schedules of zb1p_2rank_2stagep_compute.csv and dualpipev_4rank_10mb.csv in torch's folder
# test/distributed/pipelining/artifacts, and the hashes of these files.
ARTIFACTS = {
    ("interleaved-zero-bubble", 2, 8): (
        "47447dbd4824fb9cf9b4f3e3a200acfdc0763f2a8ed2eb3d72161886dc10d372"
    ),
    ("dualpipev", 4, 10): "16ce4a29936e4c5ad774098add32489b4937942e3f5ab0108f17d2826b184529",
}


@pytest.mark.parametrize(("name", "ranks", "microbatches"), ARTIFACTS)
def test_files_of_torch_are_read_and_printed_unchanged(
    name: str, ranks: int, microbatches: int
) -> None:
    pytest.importorskip("torch.distributed.pipelining")
    text = torch_csv(name, ranks, microbatches, has_transfers=False)
    assert hashlib.sha256(text.encode()).hexdigest() == ARTIFACTS[name, ranks, microbatches]
    schedule = PipelineSchedule.parse(text)
    assert schedule.to_csv() == text
    ours = make_schedule(name, ranks=ranks, microbatches=microbatches)
    assert [*map(list, map(schedule.actions, range(ranks)))] == [*map(list, ours.rows)]
    text = torch_csv(name, ranks, microbatches, has_transfers=True)
    assert PipelineSchedule.parse(text).to_csv() == text
    verify_schedule(PipelineSchedule.parse(text))


def test_files_of_other_editors_are_read() -> None:
    schedule = PipelineSchedule.parse("0F0,0B0\n1F0,1B0\n")
    for text in (
        "0F0,0B0\n1F0,1B0\n\n\n",
        "\ufeff0F0,0B0\n1F0,1B0",
        "0F0,0B0\r\n1F0,1B0\r\n",
        '"0F0", 0B0 \n1F0,"1B0"\n',
    ):
        assert PipelineSchedule.parse(text) == schedule


def test_ranks_without_actions_keep_their_lines() -> None:
    text = "0F0,0B0\n,\n1F0,1B0\n,\n"
    assert len(PipelineSchedule.parse(text).rows) == 4
    assert PipelineSchedule.parse(text).to_csv() == text


def test_each_named_schedule_prints_and_parses() -> None:
    for name in NAMED_SCHEDULES:
        schedule = make_schedule(name, ranks=2, microbatches=4)
        assert PipelineSchedule.parse(schedule.to_csv()) == schedule


def test_transfers_follow_the_passes() -> None:
    schedule = add_transfers(make_schedule("1f1b", ranks=2, microbatches=2))
    assert (
        schedule.to_csv()
        == """\
0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1
1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1
"""
    )


def test_times_of_stages_and_of_overlapped_passes() -> None:
    schedule = PipelineSchedule.parse("0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n")
    times = [PassTimes(2, 1, 1), PassTimes(3, 2, 1, overlapped=4)]
    simulation = simulate_schedule(schedule, times, transfer=0.5)
    assert {str(action): end for action, end in simulation.ends.items()} == {
        "0F0": 2,
        "0F1": 4,
        "1F0": 5.5,
        "(1F1;1B0)OVERLAP_F_B": 9.5,
        "0B0": 12,
        "1B1": 12.5,
        "0B1": 15,
    }
    assert simulation.makespan == 15
    assert simulation.busy == (8, 10)
    assert simulation.peaks == (2, 2)


CYCLE = "the schedule never ends, because of a cyclic wait: "


@pytest.mark.parametrize(
    ("text", "sends", "message"),
    [
        (
            "0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n",
            "buffered",
            CYCLE + "rank 0 stops at 0B0, which needs 1B0 of rank 1; "
            "rank 1 stops at 1F1, which needs 0F1 of rank 0",
        ),
        (
            "0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
            "1RECV_F1,1F1,1B1,1SEND_B1,1RECV_F0,1F0,1B0,1SEND_B0\n",
            "rendezvous",
            CYCLE + "rank 0 stops at 0SEND_F0, which needs 1RECV_F0 of rank 1; "
            "rank 1 stops at 1RECV_F1, which needs 0SEND_F1 of rank 0",
        ),
        (
            "0F0,0B0\n1B0,1F0\n",
            "buffered",
            CYCLE + "rank 1 stops at 1B0, which needs 1F0 later in the same row",
        ),
        ("0F0,0B0\n1F0,1I0\n", "buffered", "rank 1 computes stage 1 and lacks 1W0"),
        ("0F0,0B0\n1F0\n", "buffered", "rank 1 computes stage 1 and lacks 1B0"),
        ("0F0,0F0\n", "buffered", "rank 0 has 0F0 twice; leave one of them out"),
        ("0F0,0B0,0B0\n", "buffered", "rank 0 has 0B0 twice; leave one of them out"),
        (
            "0F0,0B0,0I0\n",
            "buffered",
            "rank 0 has 0B0 and 0I0, which both compute 0I0; leave one of them out",
        ),
        (
            "0F0\n999999999F0\n",
            "buffered",
            "no rank computes stage 1; number the stages from 0 without gaps",
        ),
        (
            "0F0,1F0\n1F1\n",
            "buffered",
            "rank 0 and rank 1 compute stage 1; move 1F1 to the row of rank 0",
        ),
        (
            "0F0\n2F0\n",
            "buffered",
            "no rank computes stage 1; number the stages from 0 without gaps",
        ),
        (
            "0F0,0SEND_F0\n1F0\n",
            "buffered",
            "rank 0 sends by 0SEND_F0, and no rank has 1RECV_F0",
        ),
        (
            "0F0\n1RECV_F0,1F0\n",
            "buffered",
            "rank 1 receives by 1RECV_F0, and no rank has 0SEND_F0",
        ),
        (
            "0F0,0SEND_F0,1RECV_F0,1F0\n",
            "buffered",
            "rank 0 has both 0SEND_F0 and 1RECV_F0; results need no transfer within a rank",
        ),
        (
            "0F0,0SEND_F0\n1RECV_F0,1F0,1RECV_F1,1F1\n0F1,0SEND_F1\n",
            "buffered",
            "rank 0 and rank 2 compute stage 0; move 0F1 to the row of rank 0",
        ),
        (
            "0F0,0REDUCE_GRAD,0B0\n",
            "buffered",
            "rank 0 has 0B0 after 0REDUCE_GRAD, which reduces the gradients of all microbatches; "
            "move the reduction to the end",
        ),
        ("0F0,3UNSHARD\n", "buffered", "rank 0 has 3UNSHARD, and no rank computes stage 3"),
        (
            "0F0,0SEND_F0\n1F0\n2F0,1RECV_F0\n",
            "buffered",
            "rank 2 has 1RECV_F0, and rank 1 computes stage 1",
        ),
        (
            "0F0,0SEND_F0\n1RECV_F0,1F0\n2F0,0SEND_F0\n",
            "buffered",
            "rank 0 and rank 2 both have 0SEND_F0; leave one of them out",
        ),
        ("0F0,0I0,0W0,0W0\n", "buffered", "rank 0 has 0W0 twice; leave one of them out"),
        ("0F0,0W0\n", "buffered", "rank 0 computes stage 0 and lacks 0I0"),
        (
            "0F0,0SEND_F0\n1F0,1RECV_F0\n",
            "buffered",
            CYCLE + "rank 1 stops at 1F0, which needs 1RECV_F0 later in the same row",
        ),
        (
            "0SEND_F0,0F0\n1RECV_F0,1F0\n",
            "buffered",
            CYCLE + "rank 0 stops at 0SEND_F0, which needs 0F0 later in the same row",
        ),
        (
            "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1SEND_B0,1B0\n",
            "buffered",
            CYCLE + "rank 1 stops at 1SEND_B0, which needs 1B0 later in the same row",
        ),
        (
            "0F0,0W0,0I0\n",
            "buffered",
            CYCLE + "rank 0 stops at 0W0, which needs 0I0 later in the same row",
        ),
        (
            "0UNSHARD\n",
            "buffered",
            "no rank computes stage 0; number the stages from 0 without gaps",
        ),
        (
            "0F0,0I0,0REDUCE_GRAD,0W0\n",
            "buffered",
            "rank 0 has 0W0 after 0REDUCE_GRAD, which reduces the gradients of all microbatches; "
            "move the reduction to the end",
        ),
    ],
)
def test_a_wrong_schedule_is_refused(text: str, sends: str, message: str) -> None:
    with pytest.raises(PipelineScheduleError) as caught:
        verify_schedule(PipelineSchedule.parse(text), SendMode(sends))
    assert str(caught.value) == message


ACTIONS = "F, I, W, B, SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD, REDUCE_GRAD"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "F0",
            f"'F0' is not an action; write the stage, one of {ACTIONS}, and the microbatch, such "
            "as 2F0",
        ),
        (
            "2BW0",
            f"'2BW0' is not an action; write the stage, one of {ACTIONS}, and the microbatch, such "
            "as 2F0; this is an older notation of torch: write B instead of BW, and I "
            "instead of B",
        ),
        (
            "1000000000F0",
            f"'1000000000F0' is not an action; write the stage, one of {ACTIONS}, and the "
            "microbatch, such as 2F0",
        ),
        ("2F", "'2F' lacks the number of a microbatch"),
        ("2UNSHARD3", "'2UNSHARD3' names microbatch 3, and UNSHARD belongs to a whole stage"),
        (
            "(0B0;1F0)OVERLAP_F_B",
            "'(0B0;1F0)OVERLAP_F_B' overlaps B and F; a forward pass F overlaps a backward pass B "
            "or I",
        ),
        (
            "(0B0;1B0)OVERLAP_F_B",
            "'(0B0;1B0)OVERLAP_F_B' overlaps B and B; a forward pass F overlaps a backward pass B "
            "or I",
        ),
        (
            "(0F0;1F1)OVERLAP_F_B",
            "'(0F0;1F1)OVERLAP_F_B' overlaps F and F; a forward pass F overlaps a backward pass B "
            "or I",
        ),
    ],
)
def test_a_malformed_action_is_refused(text: str, message: str) -> None:
    with pytest.raises(PipelineScheduleError) as caught:
        parse_action(text)
    assert str(caught.value) == message


def test_an_error_of_the_text_names_the_cell() -> None:
    with pytest.raises(PipelineScheduleError) as caught:
        PipelineSchedule.parse("0F0,0F1\n1F0,,1X\n")
    assert str(caught.value).startswith("row 2, column 3: '1X' is not an action")
    with pytest.raises(PipelineScheduleError, match="row 1: field larger than field limit"):
        PipelineSchedule.parse("0" * 200_000)
    with pytest.raises(PipelineScheduleError, match="the text has no action"):
        PipelineSchedule.parse("\n,,\n")


@pytest.mark.parametrize(
    ("name", "ranks", "microbatches", "stages_per_rank", "message"),
    [
        (
            "1f2b",
            2,
            2,
            None,
            f"'1f2b' is not a pipeline schedule; use one of {', '.join(NAMED_SCHEDULES)}",
        ),
        ("1f1b", 0, 2, None, "ranks is 0; it must be at least 1"),
        ("1f1b", 2, 0, None, "microbatches is 0; it must be at least 1"),
        ("looped-bfs", 2, 2, 0, "stages_per_rank is 0; it must be at least 1"),
        (
            "1f1b",
            2,
            10**12,
            None,
            "the schedule has 2,000,000,000,000 forward passes, and the maximum is 1,000,000; use "
            "fewer microbatches or stages",
        ),
        ("zbv", 2, 4, 3, "zbv has 2 stages on each rank; stages_per_rank is 3"),
        ("1f1b", 2, 4, 2, "1f1b has 1 stage on each rank; stages_per_rank is 2"),
        (
            "dualpipev",
            4,
            7,
            None,
            "dualpipev needs at least 2 microbatches for each rank, 8 for 4 ranks; microbatches "
            "is 7",
        ),
        (
            "interleaved-1f1b",
            4,
            9,
            None,
            "interleaved-1f1b divides the microbatches into rounds of about 4, one microbatch for "
            "each rank; 9 microbatches do not divide into 2 equal rounds",
        ),
    ],
)
def test_sizes_without_a_schedule_are_refused(
    name: str, ranks: int, microbatches: int, stages_per_rank: int | None, message: str
) -> None:
    with pytest.raises(PipelineScheduleError) as caught:
        make_schedule(name, ranks=ranks, microbatches=microbatches, stages_per_rank=stages_per_rank)
    assert str(caught.value) == message


def test_transfers_are_inserted_once() -> None:
    schedule = add_transfers(make_schedule("gpipe", ranks=2, microbatches=1))
    with pytest.raises(PipelineScheduleError) as caught:
        add_transfers(schedule)
    assert str(caught.value) == "the schedule has sends and receives already"


def test_times_are_for_all_stages_or_for_each() -> None:
    with pytest.raises(PipelineScheduleError) as caught:
        simulate_schedule(make_schedule("gpipe", ranks=3, microbatches=1), [PassTimes()] * 2)
    assert str(caught.value) == "times has 2 entries, and the schedule has 3 stages"


@pytest.mark.parametrize("times", [3, [1.0, 2.0], None])
def test_times_of_another_kind_are_an_error(times: object) -> None:
    with pytest.raises(PipelineScheduleError) as caught:
        simulate_schedule(make_schedule("gpipe", ranks=2, microbatches=1), times)  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"times is {times!r}; use a PassTimes, or one for each of 2 stages"
    )


@pytest.mark.parametrize("time", [-1, float("nan"), float("inf")])
def test_times_are_numbers_of_at_least_zero(time: float) -> None:
    with pytest.raises(PipelineScheduleError) as caught:
        PassTimes(weight_gradient=time)
    assert str(caught.value) == (
        f"weight_gradient of PassTimes is {time!r}; it must be a number of at least 0"
    )


@pytest.mark.parametrize(
    "text",
    [
        "0F0,0B0,0REDUCE_GRAD\n",
        "0F0,0I0,0W0,0REDUCE_GRAD\n",
        "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1REDUCE_GRAD,1SEND_B0\n",
    ],
)
def test_a_reduction_after_the_last_gradient_is_correct(text: str) -> None:
    verify_schedule(PipelineSchedule.parse(text))


def test_a_simulation_of_a_pass_without_its_input_is_an_error() -> None:
    with pytest.raises(PipelineScheduleError) as caught:
        simulate_schedule(PipelineSchedule.parse("0B0\n"))
    assert str(caught.value) == "rank 0 stops at 0B0, which needs 0F0; no rank has this action"


LANES = """\
rank 0:  F0--............B0------
rank 1:  ....F0--B0------
"""
LANES_OF_TWO_STAGES = """\
rank 0:  0F0-....2F0-2B0-----........0B0-----
rank 1:  ....F0--............B0------
"""
"""A backward pass takes as long as two forward passes."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0F0,0B0\n1F0,1B0\n", LANES),
        ("0F0,2F0,2B0,0B0\n1F0,1B0\n", LANES_OF_TWO_STAGES),
    ],
)
def test_lanes_name_the_stage_if_a_rank_has_several(text: str, expected: str) -> None:
    assert lanes_of(simulate_schedule(PipelineSchedule.parse(text))) == expected


def test_passes_without_a_duration_have_lanes_of_no_length() -> None:
    simulation = simulate_schedule(PipelineSchedule.parse("0F0,0B0\n,\n"), PassTimes(0, 0, 0))
    assert [line.rstrip() for line in lanes_of(simulation).splitlines()] == ["rank 0:", "rank 1:"]
    assert (simulation.cost, simulation.bubble_rate) == (0, 0)
    assert simulation.span(1) == 0


def test_overlapped_passes_without_a_time_of_their_own_take_the_sum() -> None:
    schedule = PipelineSchedule.parse("0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n")
    ends = simulate_schedule(schedule, [PassTimes(2, 1, 1), PassTimes(3, 2, 1)]).ends
    assert {str(action): end for action, end in ends.items()}["(1F1;1B0)OVERLAP_F_B"] == 11
