"""Native: models as machine code, made of their lists of calls by LLVM; for users who say so."""
