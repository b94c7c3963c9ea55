"""The commands `shardir opt`, `run`, `explain`, `emit`, `draw`, `profile`, `passes` and `test`.

Input: files of IR text, StableHLO or `module:function`. Output: text on stdout, files. Start with
`main` and the folder `commands`, which declares the commands without importing the compiler; a
command then imports the module of its implementation. `targets` resolves what it works on, `files`
reads modules.
"""
