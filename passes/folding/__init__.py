"""View folding: simpler programs over global arrays, in which pure views of values are never
materialized."""
