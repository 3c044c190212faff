"""Rules: adjoint, tangent and refusals of each primitive, declared in one place of one file.

The files are grouped by field. A rule is here if autograd's is wrong or missing for some calls, or
slow; a sweep over all differentiated functions and their parameters, which runs with the tests,
finds these calls. ``declaration`` describes the fields of a declaration.
"""
