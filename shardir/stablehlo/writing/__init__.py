"""Writing of StableHLO text.

Input: modules. Output: lines of generic MLIR. `writer` contains the writer and the rule table,
`rules` the operations with one counterpart, the other files the remaining ones. Start with
`writer`.
"""
