"""Checks: is a derivative right, and if it is not, which rule is wrong?

Derivatives are compared with differences of values along lines, since nothing else is independent
of the rules that are under suspicion.
"""
