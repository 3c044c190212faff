"""Travel: whether a pullback that leaves its process takes its tape along, and how.

A tape is sent as bytes, which are unpickled at the first use. A pullback without its tape is traced
again. The decision changes time and memory only, never a gradient.
"""
