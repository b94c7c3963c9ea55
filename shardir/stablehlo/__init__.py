"""StableHLO text with Shardy's shardings, the exchange format of JAX and XLA.

Input: StableHLO text, or modules. Output: modules, or StableHLO text. Start with `reader.py` (text
to module, by the rules in `reading/`) and `printer.py` (module to text, by those in `writing/`).
"""
