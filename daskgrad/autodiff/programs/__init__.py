"""Compiled models: the calls of the tape at work, recorded (``recording``), made fewer
(``rewrites``) and written as Python (``writing``), with the tape's bits. ``store`` decides when
they are used; what cannot be recorded is left to the tape."""
