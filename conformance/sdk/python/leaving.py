"""The last line of each script that uses the SDK: run(main()).

pyqwest, by which the SDK sends its requests, has threads of its own. Now and then
one of them aborts the process (SIGABRT, no output) while the interpreter goes,
after everything was done; it does so with any server (PyO3/pyo3-async-runtimes#40),
the more often the busier the machine. So what is over leaves without taking the
interpreter down. What fails is raised, as ever.
"""

import asyncio
import os
import sys


def run(main):
    asyncio.run(main)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
