"""Simpler programs over whole arrays: what only looks at elements another way is never made."""
