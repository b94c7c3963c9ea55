"""Measure the time to print, parse and verify programs of several kinds, in seconds.

    python benchmarks/text.py [operations]

Each figure is the best of three. The programs are chains of contractions, transposes and sums:
without shardings, with one on every value, per device with collectives, with locations, in loops,
and with an array of 16 numbers in every operation.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from shardir.text.parser import parse
from shardir.text.printer import print_module
from shardir.verify.verifier import verify

Result = TypeVar("Result")

GLOBAL = "mesh @grid = [data=4, model=2]\n\nfunc @f(\n  %x: {type},\n) -> ({type}) {{\n"
LOCAL = "mesh @grid = [data=4, model=2]\n\nspmd func @f(\n  %x: {type} of {outer},\n)"
PLAIN = "f32[128, 128]"


def lines(operations: int, type: str, end: str = "", combine: str = "") -> list[str]:
    """A chain of operations, each using the one before it."""
    kinds = (
        f'%{{i}} = dot(%{{last}}, %x, dims="bi,ih->bh") : {type}{end}',
        f"%{{i}} = transpose(%{{last}}, perm=[1, 0]) : {type}{end}",
        combine or f"%{{i}} = add(%{{last}}, %x) : {type}{end}",
    )
    return [f"  {kinds[i % 3].format(i=i, last=i - 1 if i else 'x')}\n" for i in range(operations)]


def chain(operations: int, type: str, end: str = "") -> str:
    body = "".join(lines(operations, type, end))
    return f"{GLOBAL.format(type=type)}{body}  return %{operations - 1}\n}}\n"


def per_device(operations: int) -> str:
    combine = f"%{{i}} = all-reduce(%{{last}}, axes=[data, model], op=add) : {PLAIN}"
    body = "".join(lines(operations, PLAIN, combine=combine))
    head = LOCAL.format(type=PLAIN, outer="f32[512@data, 128@-]")
    return f"{head} -> () {{\n{body}  return\n}}\n"


def loops(operations: int) -> str:
    one = (
        "  %s{i} = scan(%x, carries=1, length=3) : f32[128, 128] {{\n"
        "    (%c{i}: f32[128, 128]) =>\n"
        "    %n{i} = add(%c{i}, %x) : f32[128, 128]\n"
        "    yield %n{i}\n"
        "  }}\n"
    )
    body = "".join(one.format(i=i) for i in range(operations // 2))
    return f"{GLOBAL.format(type=PLAIN)}{body}  return %x\n}}\n"


def arrays(operations: int) -> str:
    numbers = ", ".join(f"{n}.5" for n in range(16))
    one = "  %{i} = constant(value=dense(f32, [{numbers}])) : f32[16]\n"
    body = "".join(one.format(i=i, numbers=numbers) for i in range(operations))
    return f"{GLOBAL.format(type=PLAIN)}{body}  return %x\n}}\n"


def best(work: Callable[[], Result]) -> tuple[Result, float]:
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)


def main() -> None:
    operations = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    table = Table(title=f"{operations:,} operations")
    table.add_column("program")
    for column in ("parse", "print", "verify", "MB of text"):
        table.add_column(column, justify="right")
    for name, text, locations in (
        ("no shardings", chain(operations, PLAIN), False),
        ("shardings", chain(operations, "f32[128@data:(1)2?, 128@(model, data:(2)2) p1]"), False),
        ("per device", per_device(operations), False),
        ("locations", chain(operations, PLAIN, ' loc("mlp.py":12:9)'), True),
        ("loops", loops(operations), False),
        ("arrays", arrays(operations), False),
    ):
        module, parsing = best(partial(parse, text))
        shown, printing = best(partial(print_module, module, locations=locations))
        assert shown == text, f"{name} does not print as it was written"
        _, verifying = best(partial(verify, module))
        figures = (f"{s:.3f}" for s in (parsing, printing, verifying))
        table.add_row(name, *figures, f"{len(text) / 1e6:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
