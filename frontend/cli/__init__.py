"""The commands of `shardir`, one file for each: `opt`, `run`, `explain`, `emit`, `plan` and others.

Input: files of IR text, StableHLO or `module:function`. Output: text on stdout, files. Start with
`main`, which prints errors, and the folder `commands`, which declares the commands without
importing the compiler; a command then imports the file of its name. `targets` resolves files and
functions, `files` reads modules.
"""
