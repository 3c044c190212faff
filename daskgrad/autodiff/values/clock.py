"""Clock: the times by which the package decides; tests replace these functions.

Call ``clock.seconds()`` through the module. Moments that are only shown are ``time.time()``.
"""

import sys
import time

seconds = time.perf_counter
thread_seconds = time.thread_time  # of the calling thread's processor
processor_seconds = time.process_time  # of all threads of this process

if sys.platform == "linux":
    import resource

    def preemptions() -> int:
        """How often others took the calling thread's processor, less how often it waited."""
        usage = resource.getrusage(resource.RUSAGE_THREAD)
        return usage.ru_nivcsw - usage.ru_nvcsw

else:

    def preemptions() -> int:
        """None are known."""
        return 0
