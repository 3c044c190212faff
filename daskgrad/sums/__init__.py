"""Sums: one model over many items, block by block.

A block is a run of items and one task. It adds up the gradients of its terms by the shared inputs,
so that no gradient of a single term is kept. Blocks are added in a tree over their indices: no bit
depends on the scheduler, the workers or the grainsize. ``cutting`` has the number of items in a
block, ``sources`` the collections.
"""
