"""Programs that several test folders share: random ones and mutated texts.

`strategies` and `shardings` are hypothesis strategies for modules and shardings; start there.
`mutations` changes the text of valid programs.
"""
