"""Sums: one model over many items, block by block.

A block is a run of items and one task. Its gradient with respect to what all terms share is added
up within the block, so that no gradient of a single term is ever kept; blocks are added in a tree
that their numbers decide, so that no bit depends on the scheduler, the workers or the grainsize.
``cutting`` says how many items a block has, ``sources`` what may be summed over.
"""
