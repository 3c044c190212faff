"""Compiled models: a model's NumPy calls and those of its pullback, as one list of calls.

Most of the time of a small model goes to tracing it. ``recording`` runs the model once and writes
down its calls, ``adjoints`` and ``backward`` write down those of the tape's backward pass,
``source`` makes a Python function of them, and ``programs`` decides when it is used. A program has
the bits of the tape, since it makes the same calls in the same order; what has no rule in
``adjoints`` keeps the pullback that the tape has. What cannot be recorded is left to the tape.
"""
