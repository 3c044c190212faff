"""Addresses of functions of SciPy's: of LAPACK, and special functions of numbers."""

import ctypes
import functools
import importlib


@functools.cache
def address_of(library: str, name: str) -> int:
    """The address of a function that SciPy offers to others' compiled code."""
    modules = {"lapack": "scipy.linalg.cython_lapack", "special": "scipy.special.cython_special"}
    capsule = importlib.import_module(modules[library]).__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetPointer.restype = (
        ctypes.c_char_p,
        ctypes.c_void_p,
    )
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
