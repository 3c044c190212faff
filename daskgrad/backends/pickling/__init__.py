"""Functions and arrays as bytes that become the same again, to the last bit."""
