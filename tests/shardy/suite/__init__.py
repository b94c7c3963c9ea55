"""Runner of Shardy's own test files: `python -m tests.shardy.suite.runner CHECKOUT`.

`check_files` splits a file into cases, `check_patterns` parses the CHECK lines, and
`check_matching` compares them with the result of our passes, which `op_listing` lists.
The input is a checkout of Shardy, the output one line for each difference.
`cases` lists the suites and the cases that are left out; start reading with `runner`.
"""
