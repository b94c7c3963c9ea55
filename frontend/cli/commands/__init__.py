"""The commands, with their options and the examples of their help texts.

Input: the words of a command line, which typer parses. Output: calls of `shardir.frontend.cli`. The
module of an implementation is imported when its command runs: `shardir --help`, and the completion
of a shell, start without the compiler. Start with `declaration`.
"""
