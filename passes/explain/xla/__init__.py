"""Explanations of the collectives that XLA inserted.

Input: HLO text after XLA's partitioner. Output: its collectives with their causes, beside those of
shardir's plan. Start with `xla_communication`; `xla_causes` finds the causes in the instructions
around a collective.
"""
