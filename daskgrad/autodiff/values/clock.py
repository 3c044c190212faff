"""Clock: the times by which the package decides; tests replace these functions.

Call ``clock.seconds()`` through the module. Moments that are only shown are ``time.time()``.
"""

import time

seconds = time.perf_counter
thread_seconds = time.thread_time  # of the calling thread's processor
