"""Reading of StableHLO text.

Input: MLIR text. Output: operations of the IR. `syntax` and `records` parse, `module_symbols` has
the declarations of a module, `function` reads bodies and calls, and `call` is the view of
one operation that the rules (`rules`, `shapes`, `regions`, `composed`, `collectives`, `sdy`,
`expansions`) use; through it they reach the state of the function (`function_state`). Operations
without a counterpart stay as text (`opaque`). Start with `call`, then `rules`.
"""
