"""Rewrites and checks before emission.

Input: an `Emission`. Output: an `Emission`, or `EmissionError`. `downcast` replaces element types,
`rewrite_types` avoids f64 and complex intermediates, and `resource_checks` checks types, streams
and tile memory. Start with `rewrite_types`.
"""
