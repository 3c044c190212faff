"""SciPy's functions that no protocol reaches, with SciPy's own signatures.

SciPy's special functions are ufuncs: a model calls them as they are. Other functions of SciPy turn
their arguments into plain arrays; a model calls those of these modules in their place::

    from daskgrad.scipy import linalg, special

Of plain arrays they return what SciPy returns, up to rounding. They are written in plain NumPy and
in primitives with rules (``autodiff.rules``), and run on workers. What SciPy may change in
place (``overwrite_a``) they do not take. SciPy must be installed.
"""
