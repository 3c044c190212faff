"""Backends: the libraries that can differentiate one model; ``registry`` has their protocol."""
