"""Target-independent rules of operations and their notations: factor rules (`factors`, Shardy's
model), partitioning, batching, tangents, linearity, varying manual axes (`vma`), and rules of users
(`rule_notation`, `custom_rules`). Input: types and attributes of an operation. Output: factor
rules, or per-device operations appended to a builder. `row_exchange` and `exchange_plan` are the
collective permutes that partitioning rules of windows, slices and sorts share. Start with
`factors`, then `partitioning`.
"""
