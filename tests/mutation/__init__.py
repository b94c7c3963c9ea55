"""Mutation tests: remove one guard at a time, and list the guards whose removal no test notices.

Input: source files of the package. Output: one line per mutant, then the survivors. `guards` finds
the guards of a file and makes the mutants, `runner` runs the tests, `__main__` reads the command
line. Start with `python -m tests.mutation --help`.
"""
