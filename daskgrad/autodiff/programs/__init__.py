"""Compiled models: the calls of the tape at work, recorded (``recording``), made fewer
(``rewrites``) and written as Python (``program``), with the tape's bits. ``store`` decides when
programs are used; models that cannot be recorded stay with the tape."""
