"""XLA's HLO text: a reader, and the collectives of a compiled program.

Input: the text of an HLO module (`--xla_dump_to`, or `jax.jit(f).lower(...).compile().as_text()`).
Output: its instructions (`parse_hlo`), and the collectives of a partitioned module as rows of the
communication report (`list_hlo_collectives`). Start reading in `collectives.py`.
"""
