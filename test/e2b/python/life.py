"""What happens to a command of E2B's Python SDK that runs for long.

Usage: life.py idle|restart. Each step gives one line of JSON with its name and
what was seen; after the step "streaming" of restart the script waits for a line
on standard input. The Go test beside this folder starts it and judges.
"""

import asyncio
import json
import sys
import time

import e2b
import leaving

IDLE = 3  # s, of the pool
COUNT = "i=0; while :; do echo $((i+=1)); sleep 0.1; done"


def step(name, **seen):
    print(json.dumps({"step": name, **seen}), flush=True)


async def until(what, cond, seconds=30):
    end = time.monotonic() + seconds
    while not (value := await cond()):
        assert time.monotonic() < end, f"{what} does not happen"
        await asyncio.sleep(0.05)
    return value


async def idle():
    """In use past its idle timeout, by a command that prints and by one that does
    not; then unused. Only the API is asked, which is no use of the sandbox."""
    s = await e2b.AsyncSandbox.create(timeout=300)
    out = await s.commands.run(f"for i in $(seq {10 * IDLE}); do echo $i; sleep 0.4; done")
    step("printed", lines=len(out.stdout.split()))
    step("quiet", code=(await s.commands.run(f"sleep {4 * IDLE}")).exit_code)
    began = time.monotonic()

    async def gone():
        try:
            await e2b.AsyncSandbox.get_info(s.sandbox_id)
        except e2b.NotFoundException:
            return True

    await until("the end of an unused sandbox", gone)
    step("ended", after=time.monotonic() - began)


async def restart():
    s = await e2b.AsyncSandbox.create(timeout=300)
    seen = []
    handle = await s.commands.run(COUNT, background=True, on_stdout=seen.append, timeout=0)

    async def some():
        return len(seen) > 5

    await until("output", some)
    step("streaming")
    await asyncio.to_thread(sys.stdin.readline)
    waiting = asyncio.ensure_future(handle.wait())
    before = len(seen)

    async def more():
        return waiting.done() or len(seen) > before + 20

    await until("an end of the stream, or more output", more)
    if waiting.done():
        err = waiting.exception()
        step("stream", ended=type(err).__name__, typed=isinstance(err, e2b.SandboxException), text=str(err))
    else:
        step("stream", ended="", typed=False, text="")
        waiting.cancel()
        await handle.disconnect()

    async def reached():
        try:
            return await s.commands.list()
        except e2b.SandboxException:
            return None

    listed = await until("an answer", reached)
    assert handle.pid in [p.pid for p in listed], f"{handle.pid} is not in {listed}"
    again = []
    attached = await s.commands.connect(handle.pid, on_stdout=again.append, timeout=0)

    async def on():
        return len(again) > 5

    await until("output after attaching again", on)
    step("attached", before=last(seen), after=last(again))
    assert await attached.kill()
    assert (await s.commands.run("echo still here")).stdout == "still here\n"
    assert await s.is_running()
    assert await s.kill()
    step("killed")


def last(seen):
    """The last whole number of an output that counts."""
    return int("".join(seen).rsplit("\n", 1)[0].rsplit("\n", 1)[-1])


leaving.run({"idle": idle, "restart": restart}[sys.argv[1]]())
