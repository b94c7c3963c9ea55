"""Measure the time of eager calls, calls of compiled functions, and tracing."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import shardir as sd
import shardir.numpy as snp
from shardir.sharding import NamedSharding, PartitionSpec as P


def best(run: Callable[[], Any], number: int) -> float:
    """Seconds for one run: the best of five rounds of `number`."""
    run()
    rounds = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(number):
            run()
        rounds.append((time.perf_counter() - start) / number)
    return min(rounds)


def layers(x: Any, count: int) -> Any:
    for _ in range(count):
        x = snp.tanh(x * 1.5 + x)
    return x


def main() -> None:
    numbers = np.ones((8, 8), np.float32)
    mesh = sd.make_mesh((4, 2), ("data", "model"))
    one = sd.device_put(numbers)
    eight = sd.device_put(numbers, NamedSharding(mesh, P("data", "model")))
    params = {f"layer{i}": {"w": one, "b": one, "scale": one} for i in range(100)}
    add = sd.jit(lambda x, y: x + y)
    first = sd.jit(lambda p: p["layer0"]["w"])
    deep = sd.jit(lambda x: layers(x, 10_000))
    slope = sd.grad(lambda x: snp.sum(layers(x, 10)))

    table = Table("what", "time")
    for what, run, number in (
        ("x + y, eager, 1 device", lambda: one + one, 1000),
        ("x + 1.0, eager, 1 device", lambda: one + 1.0, 1000),
        ("x + y, eager, 8 devices", lambda: eight + eight, 1000),
        ("jit(x + y), 1 device", lambda: add(one, one), 1000),
        ("jit(x + y), 8 devices", lambda: add(eight, eight), 1000),
        ("jit of 300 arrays, one used", lambda: first(params), 100),
        ("eager grad of 30 operations", lambda: slope(one), 20),
    ):
        table.add_row(what, f"{best(run, number) * 1e6:,.0f} us")
    start = time.perf_counter()
    lowered = deep.lower(one)
    table.add_row(
        f"trace {len(lowered.module.main.body.ops):,} operations",
        f"{time.perf_counter() - start:.2f} s",
    )
    Console().print(table)


if __name__ == "__main__":
    main()
