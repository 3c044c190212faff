"""Autodiff: one function, its value, its pullback and its tangents; it knows no Dask.

``values`` is what flows, ``rules`` the adjoint and tangent of each primitive, ``tape`` reverse and
forward mode over autograd's tracer, ``compiled`` tapes as lists of NumPy calls, ``libraries`` the
other backends, ``models`` one call of one model. Each imports those before it. All of it runs on
workers.
"""
