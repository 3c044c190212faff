"""Compiled models: a model's NumPy calls and those of its pullback, as one list of calls.

Most of the time of a small model goes to tracing it. ``recording`` runs the tape once on boxes and
writes down its calls, ``rewrites`` shortens the list, ``writing`` makes two Python functions of it,
and ``programs`` decides when they are used. A program has the bits of the tape, since it makes the
tape's calls. What cannot be recorded is left to the tape.
"""
