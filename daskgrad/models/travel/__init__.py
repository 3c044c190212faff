"""Travel: whether a pullback that leaves its process takes its tape along, and how.

What is sent is bytes, which become a tape at their first use. A pullback without them is traced
again. No gradient depends on what is decided here, only time and memory do.
"""
