"""Tasks: hands work to Dask, and waits for it.

The only room that touches Dask's task and graph classes. It knows functions and their arguments,
and nothing about derivatives. Each evaluation has new keys, since Dask returns the old result for a
key that it knows. Each wait has a limit: Dask itself waits for ever if no worker can run a task
(``supervision``).
"""

from daskgrad.tasks import settings, task_functions

settings.install()
task_functions.install_spilling()
