"""Comparison of the propagation edges of a function with those in the CHECK lines of a test.

Shardy adds the edges of all results of the function to the first one; ours are at each result.
"""

import re
from collections import Counter
from collections.abc import Callable
from itertools import chain

from shardir.ir.module import Module
from shardir.passes import Propagate
from shardir.passes.explain.propagation_history.propagation_edges import propagation_edges
from shardir.stablehlo.propagation_edges import format_edges
from shardir.stablehlo.reader import read
from tests.shardy.suite.check_files import Case

_EDGES = re.compile(r"#sdy\.propagation_edges<\[.*?\]\}\]\}\]>")
PROPAGATE = Propagate(level="aggressive", keep_open=True)


def compare_edges(case: Case, passes: Callable[[Module], Module]) -> list[str]:
    """Return the edges that only Shardy or only we have."""
    module = read(case.part, case.file)
    wanted = Counter(_EDGES.findall("".join("".join(c.text for c in case.checks).split())))
    found = Counter("".join(text.split()) for text in _edges(module, case.name))
    return [
        *(f"lacks {text}" for text in (wanted - found).elements()),
        *(f"has {text}" for text in (found - wanted).elements()),
    ]


def _edges(module: Module, name: str) -> list[str]:
    _, record = PROPAGATE.run_recorded(module)
    edges = propagation_edges(record.histories[name], module)
    at_results = sorted(chain.from_iterable(edges.results.values()), key=lambda edge: edge.step)
    all_edges = [*edges.operations.values(), *edges.values.values(), at_results]
    return [format_edges(each, edges.mesh) for each in all_edges if each]
