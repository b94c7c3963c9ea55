"""Microbenchmarks, with a clock that the test moves."""

from shardir.frontend.profiling import operation_benchmarks
from shardir.frontend.profiling.microbenchmark import MIN_CALLS, Microbenchmark


class Clock:
    """A clock that the benchmarked function moves by the next of some durations."""

    def __init__(self, *durations: float) -> None:
        self.durations, self.now, self.calls = durations, 0.0, 0

    def __call__(self) -> float:
        return self.now

    def function(self) -> int:
        if self.calls:  # The first call of a round is not measured.
            self.now += self.durations[(self.calls - 1) % len(self.durations)]
        self.calls += 1
        return 0


def test_the_fastest_call_of_a_round_counts() -> None:
    clock = Clock(3.0, 2.0, 5.0)
    benchmark = Microbenchmark(clock.function, ())
    benchmark.run(14.0, clock)
    assert benchmark.fastest == [2.0]
    assert clock.calls == 1 + 5


def test_long_calls_run_several_times() -> None:
    clock = Clock(8.0, 7.0, 6.0, 5.0)
    benchmark = Microbenchmark(clock.function, ())
    benchmark.run(1.0, clock)
    assert benchmark.fastest == [5.0]
    assert clock.calls == 1 + MIN_CALLS


def test_the_median_over_rounds() -> None:
    assert Microbenchmark(lambda: 0, (), [3.0, 1.0, 2.0]).seconds == 2.0


def test_the_columns_that_masked_attention_computes_in_addition() -> None:
    length = operation_benchmarks.ATTENTION_LENGTH
    assert operation_benchmarks.masked_edge(2.0, 1.25) == length / 8
    assert operation_benchmarks.masked_edge(2.0, 0.9) == 0
