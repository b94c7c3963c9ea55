"""Static counts of a module: bytes and flops per operation (`op_cost`), collectives
(`communication`) with their bytes (`collective_bytes`) and mesh axes (`mesh_axes`), peak memory
(`memory`). Input: a module. Output: counts, not times. Start with `op_cost`.
"""
