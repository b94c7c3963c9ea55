"""Sharding propagation, one concept per file.

Input: a module in which some values have shardings. Output: the module in which every value has
one, and on request the history of the decisions. Start with `propagate` (the pass).

`factor_projection` maps dimension shardings to factors; `basic` and
`aggressive` decide how far each factor can be sharded; `step` propagates through one operation,
memoized; `propagation_network` represents a function as a graph, in which a changed sharding causes
visits of operations; `worklist` runs it to a fixed point; `priorities` defines the rounds, and the
directions in which axes propagate in each; `draft`,
`split_constants` and `apply_constraints` prepare the function; `finish` writes the shardings back;
`record` holds the history.
"""
