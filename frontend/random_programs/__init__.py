"""Random programs for tests of passes and backends.

Input: `Choices`, which make random decisions (`choices`). Output: modules with shardings
(`programs`). A sampler for each operation chooses operands and attributes that the operation takes,
and appends it (`scope` has the table). Every program runs: loops end, and indices out of range have
a defined result. Start with `programs`.
"""

from shardir.frontend.random_programs import (
    callbacks as callbacks,
    calls as calls,
    collectives as collectives,
    control_flow as control_flow,
    creation as creation,
    decompositions as decompositions,
    manual_computation as manual_computation,
    pipelines as pipelines,
    pointwise as pointwise,
    reductions as reductions,
    shapes as shapes,
    windows as windows,
)
