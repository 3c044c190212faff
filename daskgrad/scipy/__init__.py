"""SciPy's functions that no protocol reaches, with SciPy's own signatures.

SciPy's special functions are ufuncs: a model calls them as they are. Other functions of SciPy turn
their arguments into plain arrays; a model calls the functions of these modules instead::

    from daskgrad.scipy import linalg, special

For plain arrays they return SciPy's results, up to rounding. They are written in plain NumPy and in
primitives with rules (``autodiff.rules``), and run on workers. They have no options that let SciPy
change arrays in place (``overwrite_a``). SciPy must be installed.
"""

from daskgrad.autodiff.values.descriptions import imported

imported("scipy", "scipy", "daskgrad.scipy has functions of SciPy's")
