"""Differentiation: `jvp` (forward mode) and `vjp` (reverse mode) of a function.

Input: a function and the parameters to
differentiate by; output: a function that computes tangents or gradients too. Start with `vjp` and
`pullback`, or `jvp` and `pushforward`; `forward_*` and `reverse_*` are the rules of control flow,
regions and manual computations. `varying` and `make_varying` infer varying manual axes; `activity`,
`residuals` and `checkpoint_policies` decide what is differentiated, saved and recomputed; `phases`
marks the operations of a gradient.
"""
