"""Rules: what is known of each primitive, adjoint, tangent and refusals, in one place of one file.

The files are grouped by field. A rule stands here where autograd's is wrong or missing for some
calls, or slow: found by a sweep over all differentiated functions and their parameters, which runs
with the tests. What a declaration may say is in ``declaration``.
"""
