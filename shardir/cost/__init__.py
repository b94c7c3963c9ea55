"""Static counts of a module: bytes and flops per operation (`op_cost`), collectives with bytes
(`communication`), the mesh axes of these (`mesh_axes`), peak memory (`memory`). Input: a module. Output: counts, not times. Start with
`op_cost`.
"""
