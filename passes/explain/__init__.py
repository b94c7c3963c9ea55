"""Explanations of sharding decisions.

Input: a module, or the result of `jit(f).lower(...)`. Output: plain data that is readable when
printed. The functions propagate with a record (`passes.propagation.record`) and evaluate it. Start
with `explanation.py` and `propagation_history/history.py`.

    explain(program, "h")             the origin of each axis of a value, and why others are absent
    conflicts(program)                conflicting shardings, the chosen one, and the others' cost
    what_if(program, ["%w: ..."])     the changes that other annotations would cause
    order_sensitive(program)          shardings that depend on the order of the worklist
    coverage(program)                 operations, dimensions and annotations without effect
    explain_collective(program, "3")  the cause of a collective, and more expensive plans
    communication(partitioned)        the collectives of a per-device program in tables
    peak_memory(partitioned)          the values that are alive at the peak of the memory
    summarize(program)                an overview: counts and bytes
    xla_communication(hlo)            the collectives of a module that XLA partitioned
    compare_with_xla(hlo, program)    the same collectives beside those of shardir's plan
"""

from shardir.passes.explain import report_text as report_text
from shardir.passes.explain.collective_causes import explain_collective as explain_collective
from shardir.passes.explain.communication import (
    CollectiveList as CollectiveList,
    communication as communication,
    tabulate_collectives as tabulate_collectives,
)
from shardir.passes.explain.conflicts import conflicts as conflicts
from shardir.passes.explain.coverage import coverage as coverage
from shardir.passes.explain.explanation import explain as explain, summarize as summarize
from shardir.passes.explain.order_sensitivity import order_sensitive as order_sensitive
from shardir.passes.explain.peak_memory import peak_memory as peak_memory
from shardir.passes.explain.propagated_program import ExplainError as ExplainError
from shardir.passes.explain.what_if import what_if as what_if
from shardir.passes.explain.xla import xla_report_text as xla_report_text
from shardir.passes.explain.xla.xla_communication import (
    compare_with_xla as compare_with_xla,
    xla_communication as xla_communication,
)
