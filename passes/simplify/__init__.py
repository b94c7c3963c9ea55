"""Simplification: passes that make a program smaller without changing its results.

Input and output: any program. Start with `simplify` and `identities` (algebraic identities), `cse`,
`dce` and `inline`; `fold_*` fold views, reductions, transposes and diagonal masks,
`fill_out_of_bounds` and `annotate_partial_sorts` prepare gathers and sorts for the backends.
"""
