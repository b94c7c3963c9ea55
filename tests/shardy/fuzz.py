"""Compare with Shardy until stopped: `python -m tests.shardy.fuzz [first seed] [count]`.

Prints the smallest part of the first program with a disagreement.
"""

import sys
import time
from itertools import count, islice
from random import Random

from shardir.ir.module import Module
from tests.shardy.compare import agrees, closed_disagreements, disagreements, smallest
from tests.shardy.oracle import LEVELS
from tests.shardy.random_programs.program_builder import Options
from tests.shardy.random_programs.programs import program


def drawn(seed: int) -> Module:
    """Return the program of a seed, with random options."""
    random = Random(seed)
    options = Options(
        size=random.choice((4, 8, 15, 30)),
        meshes=random.choice((1, 1, 1, 3)),
        maximal=random.random() < 0.3,
        calls=random.random() < 0.4,
    )
    return program(seed, options)


def main() -> int:
    first = int(sys.argv[1]) if len(sys.argv) > 1 else int(time.time())
    many = int(sys.argv[2]) if len(sys.argv) > 2 else None
    start, agreed, unanswered = time.perf_counter(), 0, 0
    for seed in islice(count(first), many):
        module = drawn(seed)
        found = agrees(module)
        if found is None:
            unanswered += 1
            continue
        if found:
            show_disagreement(seed, module)
            return 1
        agreed += 1
        if agreed % 100 == 0:
            rate = agreed / (time.perf_counter() - start)
            print(f"{agreed} programs agree at all levels ({rate:.0f} a second)", flush=True)
    print(f"{agreed} programs agree at all levels; Shardy's own check refuses {unanswered}")
    return 0


def show_disagreement(seed: int, module: Module) -> None:
    for level in LEVELS:
        if disagreements(module, level):
            small = smallest(module, level)
            print(f"seed {seed}, level {level}, cut down to\n\n{small}")
            print("\n".join(disagreements(small, level)))
            return
    print(f"seed {seed}, final shardings of\n\n{module}")
    print("\n".join(closed_disagreements(module)))


if __name__ == "__main__":
    sys.exit(main())
