"""Lowering rules of all operations to Poplar and poplibs calls.

Input: an operation and a `ProgramEmitter`. Output: C++ statements, views and expressions.
`lowering_table` registers a rule or a refusal for each operation. `fused_groups` lowers groups to
`popops::map`, with the expressions of `pointwise`, `integers`, `special` and `conversion`. Start
with `lowering_table`, then `fused_groups`.
"""
