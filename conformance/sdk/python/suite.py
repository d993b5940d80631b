"""What the cases of E2B's Python SDK share: the configuration, and the steps of a case."""

import asyncio
import inspect
import os
import sys
import time
import urllib.error
import urllib.request

import e2b

SYNC = sys.argv[1] == "sync"
Sandbox = e2b.Sandbox if SYNC else e2b.AsyncSandbox
GATEWAY = os.environ["E2B_SANDBOX_URL"]
ELSEWHERE = os.environ.get("TEST_ELSEWHERE_URL")  # the gateway, seen from another address
# The domain that gateways say, and a web server that is in sandboxes.
DOMAIN = os.environ.get("TEST_DOMAIN", "localhost:" + GATEWAY.rsplit(":")[-1])
SERVER = os.environ.get("TEST_SERVER", "python3 -m http.server")
# Whether each start of a container has a boot ID of its own; on a cluster it is the node's.
OWN_BOOT_ID = os.environ.get("TEST_BOOT_ID", "own") == "own"
PARALLEL = 50
BIG = 10 << 20
CASES = []
# The run's mark in the metadata of what the cases make, so that nothing is left after a kill.
MARK, RUN = "sandlane-conformance", os.environ.get("CONFORMANCE_RUN")


def marked(create):
    def call(*args, **options):
        return create(*args, **{**options, "metadata": {**(options.get("metadata") or {}), MARK: RUN}})

    return call


if RUN:
    Sandbox.create = marked(Sandbox.create)


def own(metadata):
    """What a case has given, without the run's mark."""
    return {k: v for k, v in metadata.items() if k != MARK}


def case(f):
    CASES.append(f)
    return f


async def a(x):
    """The value of what the one SDK returns and the other awaits."""
    return await x if inspect.isawaitable(x) else x


async def together(calls):
    """Runs calls (functions without arguments) at the same time."""
    if SYNC:
        return await asyncio.gather(*(asyncio.to_thread(c) for c in calls))
    return await asyncio.gather(*(c() for c in calls))


async def until(what, cond, seconds=10):
    end = time.monotonic() + seconds
    while not (value := await a(cond())):
        assert time.monotonic() < end, f"{what} does not happen"
        await asyncio.sleep(0.05)
    return value


def equal(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


async def fails(error, call):
    """Expects exactly this class of error, or one below it."""
    try:
        value = await a(call())
    except error as err:
        return err
    except Exception as err:
        raise AssertionError(f"{type(err).__name__} instead of {error.__name__}: {err}") from err
    raise AssertionError(f"{value!r} instead of {error.__name__}")


def gone(err):
    """The SDK says that the sandbox is gone; newer ones have a class for it."""
    cls = getattr(e2b, "SandboxNotRunningException", e2b.TimeoutException)
    assert isinstance(err, cls), f"{type(err).__name__} instead of {cls.__name__}: {err}"


class made:
    """A sandbox for the length of a with statement."""

    def __init__(self, **options):
        self.options = options

    async def __aenter__(self):
        self.sandbox = await a(Sandbox.create(**self.options))
        return self.sandbox

    async def __aexit__(self, *_):
        await a(self.sandbox.kill())


async def has_text(sbx, path, text):
    return await a(sbx.files.exists(path)) and text in await a(sbx.files.read(path))


def fetch(host, path="/", headers=None):
    """Asks the gateway for a host as a browser would whose DNS leads here."""
    request = urllib.request.Request(GATEWAY + path, headers={"Host": host, **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as err:
        return err.code, err.read().decode()


async def serve(sbx, port):
    """Starts a web server in the sandbox and waits until it listens."""
    await a(sbx.commands.run(f"{SERVER} {port}", background=True, cwd="/home/user"))
    await a(sbx.commands.run(f"until (: </dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.05; done", timeout=10))
