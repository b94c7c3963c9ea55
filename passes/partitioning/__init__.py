"""Partitioning: from a program over global tensors with explicit reshards to the program that each
device runs (SPMD). Input: output of `passes.resharding`; output: a per-device function with an
`SpmdInterface` and collectives. Start with `partition` (the pass). `checks` verifies its
preconditions; `padded_dims` analyzes padding inside of manual computations.
"""
