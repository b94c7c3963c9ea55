"""The verifier.

Input: a module. Output: `VerifyError` with every fault (`diagnostics` underlines it in the IR
text). `well_formed` has the rules for meshes, types, shardings and attributes; `divergence` finds
collectives that some devices may not execute. Start with `verifier`.
"""
