"""Test random programs until stopped: `python -m tests.passes.fuzz [first seed] [count]`.

Each seed is a hundred programs, see `tests.passes.random_cases`; `count` is the number of seeds.
Prints the smallest failing case, and continues with the next seed if `--on` is given.
"""

import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, reject, seed, settings

from shardir.frontend.random_programs.reduction import smallest_failure
from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import are_close, is_stable, tolerance_of
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module
from shardir.passes import Pipeline
from shardir.verify.verifier import verify
from tests.backends.numpy.executor_results import executor_results
from tests.passes.random_cases import Case, cases
from tests.process_control.signals import alarm

BATCH = 100
LIMIT = 60
"""Seconds that one program may take."""


def check(case: Case) -> bool:
    """Check that the per-device program is valid and computes the results of the global program.

    Return whether the results were comparable: ill-conditioned programs are not compared.
    """
    module = case.module
    verify(module)
    program = Pipeline.parse(case.pipeline)(module, lambda step, before, after, _: verify(after))
    assert program.main.spmd
    arguments = random_arguments(module, whole=True)
    want, tolerance = run(module, arguments), tolerance_of(module)
    for got in (run(program, arguments), executor_results(program, arguments)):
        if are_close(want, got, tolerance):
            continue
        if not is_stable(module, arguments, want, tolerance):
            return False
        for a, b in zip(want, got, strict=True):
            np.testing.assert_array_equal(b, a)
    return True


@dataclass
class Batch:
    """The programs of one seed."""

    seed: int
    seen: int = 0
    unsteady: int = 0
    last: Case | None = field(default=None, repr=False)
    """The case that failed last: in the end the smallest."""

    def run(self) -> BaseException | None:
        """Return the failure of the smallest failing case, if there is one."""

        @seed(self.seed)
        @settings(
            max_examples=BATCH,
            database=None,
            deadline=None,
            derandomize=False,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )
        @given(cases())
        def programs(case: Case) -> None:
            self.try_out(case)

        try:
            programs()
        except Exception as error:
            return error
        return None

    def try_out(self, case: Case) -> None:
        try:
            with limit_seconds(LIMIT):
                known = check(case)
        except Exception:
            self.last = case
            raise
        if not known:
            self.unsteady += self.last is None
            reject()
        self.seen += self.last is None

    def smallest(self, error: BaseException) -> Case | None:
        """Return the smallest part of the last failing case that still fails."""
        if self.last is None:
            return None
        pipeline = self.last.pipeline

        def fails(module: Module) -> bool:
            try:
                with limit_seconds(LIMIT):
                    check(Case(pipeline, module))
            except Exception as other:
                return type(other) is type(error)
            return False

        return Case(pipeline, smallest_failure(self.last.module, fails))


@contextmanager
def limit_seconds(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` if the block takes longer."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"this took longer than {seconds:g} seconds")

    with alarm(seconds, stop):
        yield


def main() -> int:
    numbers = [int(word) for word in sys.argv[1:] if word != "--on"]
    first = numbers[0] if numbers else int(time.time())
    many = numbers[1] if len(numbers) > 1 else None
    start, seen, unsteady, failed = time.perf_counter(), 0, 0, 0
    for number in islice(count(first), many):
        batch = Batch(number)
        error = batch.run()
        seen, unsteady = seen + batch.seen, unsteady + batch.unsteady
        if error:
            failed += 1
            frames = traceback.format_tb(error.__traceback__)
            notes = [note for note in getattr(error, "__notes__", ()) if note.startswith("while")]
            print(
                f"seed {number}, cut down to\n\n{batch.smallest(error)}\n{''.join(frames[-3:])}",
                end="",
            )
            print(f"{type(error).__name__}: {error}", *notes, sep="\n", flush=True)
            if "--on" not in sys.argv:
                return 1
        rate = seen / (time.perf_counter() - start)
        print(f"{seen} programs agree, {unsteady} hang on the last bit ({rate:.0f} a second)",
              flush=True)  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
