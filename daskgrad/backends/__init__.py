"""Backends: the libraries that can differentiate one model; ``protocol`` tells what each has."""
