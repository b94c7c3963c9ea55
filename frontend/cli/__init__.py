"""The commands `shardir opt`, `passes`, `run`, `explain`, `emit` and `test`.

Input: files of IR text, StableHLO or `module:function`. Output: text on stdout, files. `targets`
resolves what a command works on, `files` reads modules, `options` declares shared options. Start
with `main`.
"""
