"""Cases of E2B's Python SDK against a running backend.

Usage: cases.py sync|async [CASE…], all without names. The SDK is configured by its usual
variables; each case is a function of one of the modules cases_… and gives one line of JSON:
name, ok, error, ms. The Go package of this folder's parent starts it and knows which cases
there must be.
"""

import asyncio
import json
import sys
import time

import leaving
from suite import CASES, Sandbox, a

# Each module adds its cases to CASES.
import cases_sandboxes  # noqa: F401
import cases_commands  # noqa: F401
import cases_files  # noqa: F401
import cases_pauses  # noqa: F401
import cases_access  # noqa: F401
import cases_errors  # noqa: F401


async def main():
    shared = await a(Sandbox.create(timeout=600))
    for f in (f for f in CASES if not sys.argv[2:] or f.__name__ in sys.argv[2:]):
        began, error = time.monotonic(), ""
        try:
            await asyncio.wait_for(f(shared), 90)
        except BaseException as err:  # a case must not end the others
            error = f"{type(err).__name__}: {err}"
        ms = round((time.monotonic() - began) * 1000)
        print(json.dumps({"name": f.__name__, "ok": not error, "error": error, "ms": ms}), flush=True)
    await a(shared.kill())


leaving.run(main())
