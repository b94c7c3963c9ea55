"""Every interleaving of small programs: each task once, phases in order, nobody sleeps for ever."""

import pytest

from tests.backends.cpu.threads.protocol_model import Fault, Protocol, walk

PROGRAMS = [(1, (2, 2)), (1, (1, 2, 1)), (1, (3, 3, 3)), (2, (2, 1)), (2, (2, 2))]
LARGER = [(2, (3, 2)), (2, (3, 2, 2)), (3, (2,))]
"""A minute."""


def test_the_protocol_is_free_of_faults(request: pytest.FixtureRequest) -> None:
    for workers, tasks in PROGRAMS + (LARGER if request.config.getoption("--long") else []):
        assert walk(Protocol(workers, tasks)) > 200


@pytest.mark.parametrize(
    ("broken", "words"),
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
def test_the_walk_finds_what_is_broken(broken: str, words: str) -> None:
    with pytest.raises(Fault, match=words):
        walk(Protocol(1, (2, 2, 1), broken))
