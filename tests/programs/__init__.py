"""Programs that several test folders share: random programs, mutated texts, and reductions.

`strategies` and `shardings` are hypothesis strategies for modules and shardings; start there.
`mutations` changes the text of valid programs, and `program_reduction` shrinks a failing one.
"""
