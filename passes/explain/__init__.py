"""Why a program is cut as it is, why not otherwise, and what would be if.

Every question is a function from a module (or what `jit(f).lower(...)` returns) to plain data
that reads well when printed:

    explain(program, "h")        where each axis of a value came from, why others are not there
    conflicts(program)           wishes that met, who won, and what the loser pays
    what_if(program, ["%w: ..."]) what other annotations would change
    order_sensitive(program)     shardings that are an accident of the order of work
    coverage(program)            operations, dimensions and annotations that were left out
    explain_collective(program, "3") what stands behind a collective, and dearer ways
    communication(partitioned)   the collectives of a per-device program in tables
    summarize(program)           all of it in numbers

They propagate with a record (`passes.propagation.record`) and read it.
"""

from shardir.passes.explain.causes import explain_collective as explain_collective
from shardir.passes.explain.communication import communication as communication
from shardir.passes.explain.coverage import coverage as coverage
from shardir.passes.explain.disagreements import conflicts as conflicts
from shardir.passes.explain.edits import what_if as what_if
from shardir.passes.explain.explanation import explain as explain
from shardir.passes.explain.order import order_sensitive as order_sensitive
from shardir.passes.explain.program import ExplainError as ExplainError
from shardir.passes.explain.summary import summarize as summarize
