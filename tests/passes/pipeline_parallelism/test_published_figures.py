"""Bubble rates of a published table, closed forms of bubbles and memory, and searched schedules."""

from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest

from shardir.passes.pipeline_parallelism.named_schedules import make_schedule
from shardir.passes.pipeline_parallelism.progress import SendMode, verify_schedule
from shardir.passes.pipeline_parallelism.search import search_schedule
from shardir.passes.pipeline_parallelism.simulation import (
    PassMemory,
    PassTimes,
    simulate_schedule,
)
from tests.passes.pipeline_parallelism.published_rates import PUBLISHED_ROWS, PublishedRow

QUICK = [row for row in PUBLISHED_ROWS if row.ranks == 8 and row.microbatches < 64]
LONG = [row for row in PUBLISHED_ROWS if row not in QUICK]
ROWS = [*QUICK, *(pytest.param(row, marks=pytest.mark.long) for row in LONG)]

WEIGHT_GRADIENT_SHARE = 0.43
"""32 / (34 + 5 a s / h) for heads of 128 and sequences of 1024 (table 1 of the paper)."""


def times_of(row: PublishedRow) -> PassTimes:
    return PassTimes(row.forward, row.input_gradient, row.weight_gradient)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bubble_rates_are_those_of_the_paper(row: PublishedRow) -> None:
    for name, published in (
        ("1f1b", row.one_f_one_b),
        ("zb-h1", row.zb_h1),
        ("zb-h2", row.zb_h2),
    ):
        schedule = make_schedule(name, ranks=row.ranks, microbatches=row.microbatches)
        simulation = simulate_schedule(schedule, times_of(row), transfer=row.transfer)
        assert f"{simulation.bubble_rate:.4f}" == f"{published:.4f}"


@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.parametrize("is_double", [False, True])
def test_searched_schedules_are_at_most_as_long_as_those_of_the_paper(
    row: PublishedRow, is_double: bool
) -> None:
    limit = row.ranks * (1 + is_double)
    found = search_schedule(
        ranks=row.ranks,
        microbatches=row.microbatches,
        times=times_of(row),
        transfer=row.transfer,
        memory=PassMemory(1, WEIGHT_GRADIENT_SHARE),
        memory_limit=limit,
    )
    verify_schedule(found.schedule)
    assert max(found.peaks) <= limit
    assert round(float(found.bubble_rate), 4) <= (row.zb_2p if is_double else row.zb_h1)


def sizes() -> Iterator[object]:
    for ranks in range(2, 17):
        for microbatches in range(1, 65):
            is_quick = ranks in (2, 5, 16) and microbatches in (1, 2, 4, 5, 40)
            marks = () if is_quick else (pytest.mark.long,)
            yield pytest.param(ranks, microbatches, marks=marks)


FORWARD, INPUT, WEIGHT = Fraction(7, 3), Fraction(5, 2), Fraction(9, 5)
TOTAL = FORWARD + INPUT + WEIGHT


@pytest.mark.parametrize(("ranks", "microbatches"), [*sizes()])
def test_bubbles_have_the_closed_forms(ranks: int, microbatches: int) -> None:
    """Narayanan et al. 2021, section 2.2, and Qi et al. 2024, table 2 and appendix H."""
    times = PassTimes(FORWARD, INPUT, WEIGHT)

    def bubble(name: str, times: PassTimes) -> object:
        schedule = make_schedule(name, ranks=ranks, microbatches=microbatches)
        return simulate_schedule(schedule, times).makespan - microbatches * times.total

    assert bubble("gpipe", times) == bubble("1f1b", times) == (ranks - 1) * TOTAL
    if microbatches >= ranks:
        zb_h1 = make_schedule("zb-h1", ranks=ranks, microbatches=microbatches)
        zb_h1_bubble = simulate_schedule(zb_h1, times).cost - microbatches * TOTAL
        assert zb_h1_bubble == (ranks - 1) * (FORWARD + INPUT - WEIGHT)
    else:
        last_weight_gradients = (1 - microbatches) * WEIGHT
        assert bubble("zb-h1", times) == (ranks - 1) * (FORWARD + INPUT) + last_weight_gradients
    if microbatches % ranks == 0:
        for stages in (2, 3) if ranks < 16 else (2,):
            check_interleaved(ranks, microbatches, stages)
    if microbatches >= 2 * ranks:
        zb_h2 = make_schedule("zb-h2", ranks=ranks, microbatches=microbatches)
        zb_h2_bubble = simulate_schedule(zb_h2, times).cost - microbatches * TOTAL
        assert zb_h2_bubble == (ranks - 1) * (FORWARD + INPUT - 2 * WEIGHT)
        assert simulate_schedule(zb_h2).cost == 3 * microbatches
        zbv = make_schedule("zbv", ranks=ranks, microbatches=microbatches)
        assert simulate_schedule(zbv).cost == 6 * microbatches


def check_interleaved(ranks: int, microbatches: int, stages: int) -> None:
    """Compare the bubble and the memory of `stages` stages on each rank with the closed forms."""
    chunk = PassTimes(FORWARD / stages, INPUT / stages, WEIGHT / stages)
    schedule = make_schedule(
        "interleaved-1f1b", ranks=ranks, microbatches=microbatches, stages_per_rank=stages
    )
    simulation = simulate_schedule(schedule, chunk, memory=PassMemory(Fraction(1, stages), 0))
    assert simulation.makespan - microbatches * TOTAL == (ranks - 1) * TOTAL / stages
    if microbatches > ranks:
        assert max(simulation.peaks) == ranks + Fraction(ranks - 1, stages)


@pytest.mark.parametrize("ranks", [2, 5, 8])
def test_the_bubble_of_dualpipev(ranks: int) -> None:
    """The table of deepseek-ai/DualPipe, whose passes F and I take equal times."""
    times = PassTimes(forward=2, input_gradient=2, weight_gradient=1, overlapped=4)
    schedule = make_schedule("dualpipev", ranks=ranks, microbatches=2 * ranks)
    simulation = simulate_schedule(schedule, times)
    idle = max(simulation.makespan - busy for busy in simulation.busy)
    # (p - 1)(F&B + B - 3W), where B is a whole backward pass.
    assert idle == (ranks - 1) * (4 + 3 - 3 * 1)


@pytest.mark.parametrize(
    ("name", "closed_form"),
    [
        ("gpipe", lambda p, m, i: (m, 0)),
        ("1f1b", lambda p, m, i: (p - i + 1, 0)),
        ("zb-h1", lambda p, m, i: (p - i + 1, i - 1)),
        ("zb-h2", lambda p, m, i: (2 * p - 2 * i + 1, 2 * i - 2)),
    ],
)
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_peaks_have_the_closed_forms(
    name: str, closed_form: Callable[[int, int, int], tuple[int, int]], ranks: int
) -> None:
    """Qi et al. 2024, table 2: device i (from 1) holds these multiples of M_B and M_W."""
    microbatches = 3 * ranks
    schedule = make_schedule(name, ranks=ranks, microbatches=microbatches)
    memory = PassMemory(Fraction(1), Fraction(3, 7))
    peaks = simulate_schedule(schedule, memory=memory).peaks
    forms = [closed_form(ranks, microbatches, i + 1) for i in range(ranks)]
    assert list(peaks) == [m_b + m_w * Fraction(3, 7) for m_b, m_w in forms]


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_v_holds_the_memory_of_1f1b(ranks: int) -> None:
    """Each of the two stages of a rank holds half of a microbatch (Qi et al. 2024, 2405.15362)."""
    half = PassMemory(Fraction(1, 2), Fraction(1, 2))
    for name in ("zbv", "dualpipev"):
        schedule = make_schedule(name, ranks=ranks, microbatches=4 * ranks)
        peaks = simulate_schedule(schedule, memory=half).peaks
        assert max(peaks) <= ranks + (name == "dualpipev")


@pytest.mark.parametrize("sends", SendMode)
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1", "zb-h2", "zbv", "dualpipev"])
def test_published_schedules_end(name: str, sends: SendMode) -> None:
    verify_schedule(make_schedule(name, ranks=4, microbatches=9), sends)
