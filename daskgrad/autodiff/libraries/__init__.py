"""Backends: the libraries that can differentiate one model; ``protocol`` describes them."""
