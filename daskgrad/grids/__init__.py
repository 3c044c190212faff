"""Grids: arrays that are cut into blocks, and steps on blocks that exchange their edges.

``layout`` says where blocks and halos are, ``halos`` cuts, assembles and pads, each beside its
adjoint; ``block_steps`` runs steps on one block and pulls them back; ``step_nodes`` records them,
and ``passes`` builds their tasks. Users call ``grid`` and ``map_overlap``.
"""
