"""Every interleaving of small programs runs each task once, phases in order, and without
deadlock."""

import pytest

from tests.backends.cpu.threads.protocol_model import Protocol, ProtocolViolation, explore

PROGRAMS = [(1, (2, 2)), (1, (1, 2, 1)), (1, (3, 3, 3)), (2, (2, 1)), (2, (2, 2))]
LARGER_PROGRAMS = [(2, (3, 2)), (2, (3, 2, 2)), (3, (2,))]
"""These take about a minute."""


def test_the_protocol_has_no_violations(request: pytest.FixtureRequest) -> None:
    for workers, tasks in PROGRAMS + (
        LARGER_PROGRAMS if request.config.getoption("--long") else []
    ):
        assert explore(Protocol(workers, tasks)) > 200


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("describes after opening", "ran twice|before phase|no end"),
        ("keeps the count", "ended before all its tasks|before phase"),
        ("counts before running", "before phase|before all"),
        ("claims without comparing", "ran twice|no end"),
        ("reads before claiming", "ran twice|before phase"),
        ("does not tell", "no end can be reached"),
        ("sleeps regardless", "no end can be reached"),
        ("warns after looking", "no end can be reached"),
        ("sleeps through an opening", "went to sleep beside open tasks"),
    ],
)
def test_the_exploration_finds_inserted_faults(fault: str, message: str) -> None:
    with pytest.raises(ProtocolViolation, match=message):
        explore(Protocol(1, (2, 2, 1), fault))
