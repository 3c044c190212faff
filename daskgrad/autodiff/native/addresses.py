"""Addresses of LAPACK's functions."""

import ctypes
import functools

from scipy.linalg import cython_lapack


@functools.cache
def address_of(name: str) -> int:
    """The address of a function, which SciPy offers to others' compiled code."""
    capsule = cython_lapack.__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetPointer.restype = (
        ctypes.c_char_p,
        ctypes.c_void_p,
    )
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
