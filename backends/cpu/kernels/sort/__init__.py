"""`sort` (also stable by several keys, with permutation) and `top_k` along a dimension.

Input: strided views of keys and operands. Output: phases that write sorted lines, or the
permutation (argsort). Algorithms: sorting network with one lane per line (`row_network`),
vectorized quicksort and samplesort (AVX-512 compress), LSD radix sort. Start with `sort_rules`.
"""
