"""Devices, meshes and shardings of the public interface, and their translation to the IR.

Input: `NamedSharding`, `PositionalSharding`, `PartitionSpec`. Output: sub-axes of one common mesh.
`sub_axes` is the common representation; `sharding_tokens` represents shardings while a function is
traced; `common_mesh` expresses all shardings of a program on one mesh and results in the user's
shardings. Start with `sharding` and `sub_axes`.
"""
