"""Clients of E2B's Python SDK that create, run a command and kill, round after round.

Usage: storm.py CLIENTS ROUNDS MARK. Gives one line of JSON for each round: ok,
error, and the seconds that create, run and kill took. Every command leaves a
process behind whose name is MARK. The Go test beside this folder starts it.
"""

import asyncio
import json
import sys
import time

import e2b
import leaving

CLIENTS, ROUNDS, MARK = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


async def once(text):
    times = [time.monotonic()]
    sandbox = await e2b.AsyncSandbox.create(timeout=300)
    times.append(time.monotonic())
    try:
        # setsid replaces itself by bash, and that by the process of that name.
        leave = f"setsid bash -c 'exec -a {MARK} sleep 86399' >/dev/null 2>&1 & "
        out = await sandbox.commands.run(leave + f"echo {text}")
        times.append(time.monotonic())
        assert out.stdout == text + "\n", out
    finally:
        killed = await sandbox.kill()
    times.append(time.monotonic())
    assert killed, "kill found no sandbox"
    return [b - a for a, b in zip(times, times[1:])]


async def client(number):
    for n in range(ROUNDS):
        error, took = "", []
        try:
            took = await once(f"{MARK}-{number}-{n}")
        except Exception as err:  # a round must not end the others
            error = f"client {number}, round {n}: {type(err).__name__}: {err}"
        print(json.dumps({"ok": not error, "error": error, "took": took}), flush=True)


async def main():
    await asyncio.gather(*(client(n) for n in range(CLIENTS)))


leaving.run(main())
