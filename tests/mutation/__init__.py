"""Mutation tests: remove one guard at a time, and list the guards without which all tests pass.

Input: source files of the package. Output: one line per mutant, then the survivors. `guards` finds
the guards of a file, `mutants` makes the code without one, `record` finds the tests in which a
guard decides, `runner` runs them in `processes`, and `__main__` reads the command line. Start with
`python -m tests.mutation --help`.
"""
