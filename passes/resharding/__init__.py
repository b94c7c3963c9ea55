"""Explicit reshards: decide with which shardings each operation runs, and insert, move and merge
the `reshard` operations between them. Input: a program with all shardings; output: the same with
`reshard` wherever a tensor changes its sharding. Start with `reshard` (the pass) and `align`
(shardings of one operation). `planner` plans the collectives of one reshard (`lattice*`: search,
`greedy*`: as Shardy) and `cost` computes their cost. `uneven` treats dimensions that mesh axes do
not divide, `explanations` formats the `why` texts. `resolve_conflicts`, `merge_shifts`,
`sink_reductions`, `sink_reshards` and `share_reshards` reduce the bytes that the program sends.
"""
