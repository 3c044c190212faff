"""Pairs of programs with the same arithmetic, by theme: the plain way and a person's way."""
