"""The commands `shardir opt`, `run`, `explain` and `emit`.

Input: files of IR text, StableHLO or `module:function`. Output: text on stdout, files. `targets`
resolves what a command works on, `files` reads modules, `options` declares shared options. Start
with `main`.
"""
