"""argmax/argmin, early-exit any/all, boolean mask compaction, and order statistics without sorting
(radix select). Input: strided views, or addresses of masks. Output: phases, or index/row blocks for
masks. Start with `argminmax` and `mask_compaction`.
"""
