"""Cases of errors: each is the class that the SDK has for it."""

import asyncio
import concurrent.futures
import time

import e2b
from suite import ELSEWHERE, PARALLEL, SYNC, Sandbox, a, case, fails, gone


@case
async def error_not_found(sbx):
    await fails(e2b.NotFoundException, lambda: sbx.files.read("/nowhere"))
    await fails(e2b.NotFoundException, lambda: Sandbox.get_info("i00000000000000000000"))
    await fails(e2b.NotFoundException, lambda: Sandbox.connect("i00000000000000000000"))


@case
async def error_auth(sbx):
    await fails(e2b.AuthenticationException, lambda: Sandbox.create(api_key="e2b_" + "0" * 40))


@case
async def error_rate_limit(sbx):
    """Twenty wrong keys at once are too many, and one more each second. From an
    address of its own, so that other cases are not limited."""

    async def ask():
        opts = {"api_key": "e2b_" + "0" * 40, "api_url": ELSEWHERE}
        call = lambda: Sandbox.get_info("i00000000000000000000", **opts)
        return await (asyncio.to_thread(call) if SYNC else call())

    if SYNC:  # or there would be six at once
        asyncio.get_running_loop().set_default_executor(concurrent.futures.ThreadPoolExecutor(PARALLEL))
    said = [type(err) for err in await asyncio.gather(*(ask() for _ in range(40)), return_exceptions=True)]
    limited, wrong = said.count(e2b.RateLimitException), said.count(e2b.AuthenticationException)
    assert limited + wrong == 40 and limited >= 5 and wrong >= 20, said


@case
async def error_gone(sbx):
    s = await a(Sandbox.create())
    await a(s.commands.run("true"))
    await a(s.kill())
    for _ in range(3):
        gone(await fails(e2b.SandboxException, lambda: s.commands.run("true")))
    gone(await fails(e2b.SandboxException, lambda: s.files.read("x")))


@case
async def error_killed(sbx):
    """Killed from elsewhere while a command runs, which says something or nothing."""
    for command in ("sleep 1000", "while :; do echo x; sleep 0.1; done"):
        s = await a(Sandbox.create())
        h = await a(s.commands.run(command, background=True))
        waiting = asyncio.ensure_future(asyncio.to_thread(failure, h) if SYNC else async_failure(h))
        await a(Sandbox.kill(s.sandbox_id))
        killed = time.monotonic()
        gone(await waiting)
        took = time.monotonic() - killed
        assert took < 30, f"the SDK knew {took:.1f} s after the kill"  # a command of its own would end after 60


def failure(handle):
    try:
        return AssertionError(f"the command ended with {handle.wait()}")
    except Exception as err:
        return err


async def async_failure(handle):
    try:
        return AssertionError(f"the command ended with {await handle.wait()}")
    except Exception as err:
        return err


@case
async def error_template(sbx):
    await fails(e2b.SandboxException, lambda: Sandbox.create(template="no-such-template"))
