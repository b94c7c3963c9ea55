"""Measure the time of explanations of a large program, compared with propagation alone.

The program is the training step of `transformer.py`; every explanation propagates it with a
recorder first. The times are processor times in seconds.

    python benchmarks/explain.py [layers]
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table
from transformer import MESHES, arguments, train_step

from shardir.ir.module import Module
from shardir.passes import Propagate
from shardir.passes.explain import (
    conflicts,
    coverage,
    explain,
    order_sensitive,
    summarize,
    what_if,
)


def questions(module: Module) -> dict[str, Callable[[], Any]]:
    ops = module.main.body.ops
    value = ops[len(ops) * 2 // 3].results[0].name
    param = "%" + module.main.body.params[0].name
    return {
        "propagate": lambda: Propagate()(module),
        "with a record": lambda: Propagate().run_recorded(module),
        "explain a value": lambda: explain(module, value),
        "conflicts": lambda: conflicts(module),
        "what if": lambda: what_if(module, without=[param]),
        "order": lambda: order_sensitive(module),
        "coverage": lambda: coverage(module),
        "summary": lambda: summarize(module),
    }


def seconds(question: Callable[[], Any]) -> float:
    start = time.process_time()
    question()
    return time.process_time() - start


def main() -> None:
    layers = int(sys.argv[1]) if len(sys.argv) > 1 else 96
    module = train_step.lower(*arguments(layers, MESHES[0])).module
    count = sum(1 for _ in module.main.body.walk())
    table = Table("question", "seconds", title=f"{layers} layers, {count} operations")
    for name, question in questions(module).items():
        table.add_row(name, f"{seconds(question):.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
