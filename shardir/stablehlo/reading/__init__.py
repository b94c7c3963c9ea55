"""Reading of StableHLO text.

Input: MLIR text. Output: operations of the IR. `syntax` and `records` parse, `function` reads
bodies and inlines calls, and `call` is the view of one operation that the rules use (`rules`,
`shapes`, `regions`, `composed`, `collectives`, `sdy`, `lapack`). Operations without a counterpart
stay as text (`opaque`). Start with `call`, then `rules`.
"""
