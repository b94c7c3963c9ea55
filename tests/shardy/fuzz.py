"""Compare with Shardy until stopped: `python -m tests.shardy.fuzz [first seed] [how many]`.

Prints the smallest part of the first program on which we disagree.
"""

import sys
import time
from itertools import count, islice
from random import Random

from tests.shardy.compare import closed_disagreements, disagreements, smallest
from tests.shardy.maker import Options
from tests.shardy.oracle import LEVELS
from tests.shardy.programs import program


def main() -> int:
    first = int(sys.argv[1]) if len(sys.argv) > 1 else int(time.time())
    many = int(sys.argv[2]) if len(sys.argv) > 2 else None
    start, seen = time.perf_counter(), 0
    for seed in islice(count(first), many):
        random = Random(seed)
        options = Options(size=random.choice((4, 8, 15, 30)), meshes=random.choice((1, 1, 1, 3)))
        module = program(seed, options)
        for level in LEVELS:
            if disagreements(module, level):
                small = smallest(module, level)
                print(f"seed {seed}, level {level}, cut down to\n\n{small}")
                print("\n".join(disagreements(small, level)))
                return 1
        if found := closed_disagreements(module):
            print(f"seed {seed}, final shardings of\n\n{module}")
            print("\n".join(found))
            return 1
        seen += 1
        if seen % 100 == 0:
            rate = seen / (time.perf_counter() - start)
            print(f"{seen} programs agree at all levels ({rate:.0f} a second)", flush=True)
    print(f"{seen} programs agree at all levels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
