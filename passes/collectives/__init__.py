"""Optional passes on the collectives of a per-device program: combine them, overlap them with
computation, decompose them (`collective_matmul`), repeat gathers (`rematerialize_gathers`), split
them hierarchically into those within and between processes (`hierarchical`,
`hierarchical_splitter`, `hierarchical_rules`), add in a wider float (`widen_reductions`), and make
divergent control flow uniform. Input and output: per-device programs. Each file is one pass; start
with `combine`.
"""
