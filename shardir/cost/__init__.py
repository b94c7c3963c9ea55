"""Static counts of a module: bytes and flops per operation (`op_cost`), collectives with bytes
(`communication`) and their mesh axes (`mesh_axes`), peak memory (`memory`). Input: a module.
Output: counts, not times. Start with `op_cost`.
"""
