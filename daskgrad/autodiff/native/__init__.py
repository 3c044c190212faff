"""Lists of calls as machine code, an extra that is imported by name."""
