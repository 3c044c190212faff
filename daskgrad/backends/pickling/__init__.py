"""Pickling: functions and arrays as bytes, which load as the same, to the last bit."""
