"""Rules of `fold-views`: operations run in the dimensions of existing values instead of
materializing reshapes, transposes and broadcasts. Input: a block. Output: the block with views
folded into their users. Start with `views` (the data structure), then `folder` (one block); the
other files are the rules of groups of operations.
"""
