"""Time loops of a model: ``scan``. The backward pass runs steps again from few kept states.

``schedules`` decides which states are kept, and ``reversal`` carries that out; ``steps`` runs,
traces and pulls back single steps. Outside of models a loop is a node (``loop_node``), and each of
its tasks runs some consecutive steps (``pieces``); inside it is a rule (``nested``).
"""
