"""Comparison with the real Shardy in jaxlib's wheel.

`oracle` runs Shardy on a module, `compare` states where its decisions differ from ours, and
`fuzz` does that for the programs of `random_programs`. `suite` runs Shardy's own test files.
Start reading with `test_agreement.py`; the results are lists of differences, one line each.
"""
