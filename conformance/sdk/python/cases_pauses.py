"""Cases of pauses, resumes and snapshots."""

import os
import time

import e2b
from suite import OWN_BOOT_ID, SYNC, Sandbox, a, case, equal, fails, fetch, gone, has_text, made, serve, until


@case
async def pause_resume(sbx):
    """A process counts on where it stood: it is the same one, and did not run meanwhile. A
    terminal and a server go on too."""
    async with made(timeout=120) as s:
        await a(s.files.write("kept.txt", "kept"))
        h = await a(s.commands.run("i=0; while :; do echo $((i+=1)) > count; sleep 0.05; done", background=True, timeout=0))
        await until("a count", lambda: s.files.exists("count"))
        on = {} if SYNC else {"on_data": lambda _: None}
        terminal = await a(s.pty.create(e2b.PtySize(rows=10, cols=20), **on))
        await a(s.pty.send_stdin(terminal.pid, b"word=kept-in-memory\n"))
        await serve(s, 8000)
        boot = await boot_id(s)
        assert await a(s.pause())
        equal((await a(Sandbox.get_info(s.sandbox_id))).state.value, "paused")
        assert not await a(s.is_running())
        gone(await fails(e2b.SandboxException, lambda: s.commands.run("true")))
        await fails(e2b.SandboxException, lambda: s.set_timeout(60))
        again = await a(Sandbox.connect(s.sandbox_id, timeout=300))
        info = await a(again.get_info())
        equal(info.state.value, "running")
        left = info.end_at.timestamp() - time.time()
        assert 280 < left <= 302, f"it ends in {left} s"
        assert await a(again.is_running())
        equal(await a(again.files.read("kept.txt")), "kept")
        assert any(p.pid == h.pid for p in await a(again.commands.list()))
        before = int(await a(again.files.read("count")) or 0)
        await until("counting", lambda: counts_beyond(again, before))
        await a(again.pty.send_stdin(terminal.pid, b"echo $word > said\n"))
        await until("the terminal to answer", lambda: has_text(again, "said", "kept-in-memory"))
        equal(fetch(again.get_host(8000), "/kept.txt"), (200, "kept"))
        equal(await boot_id(again), boot)


async def boot_id(s):
    """It changes when all that ran was started anew."""
    return (await a(s.commands.run("cat /proc/sys/kernel/random/boot_id"))).stdout


async def counts_beyond(s, n):
    return int(await a(s.files.read("count")) or 0) > n


@case
async def pause_twice(sbx):
    s = await a(Sandbox.create())
    assert await a(s.beta_pause())
    assert not await a(s.pause())
    assert await a(s.kill())
    assert not await a(Sandbox.kill(s.sandbox_id))
    await fails(e2b.SandboxException, lambda: Sandbox.connect(s.sandbox_id))


@case
async def pause_files(sbx):
    """The memory is given up: files and variables are in another pod, the process is not."""
    async with made(timeout=120, envs={"MINE": "mine"}) as s:
        await a(s.files.write("kept/file.txt", "kept"))
        await a(s.commands.run("sleep 1000", background=True, timeout=0))
        boot = await boot_id(s)
        assert await a(s.pause(keep_memory=False))
        assert not await a(s.pause(keep_memory=False))
        equal((await a(Sandbox.get_info(s.sandbox_id))).state.value, "paused")
        gone(await fails(e2b.SandboxException, lambda: s.commands.run("true")))
        again = await a(Sandbox.connect(s.sandbox_id, timeout=300))
        equal((await a(again.get_info())).state.value, "running")
        equal((await a(again.commands.run("cat kept/file.txt; echo $MINE"))).stdout, "keptmine\n")
        equal(await a(again.commands.list()), [])
        assert not OWN_BOOT_ID or await boot_id(again) != boot, "the next pod has the boot ID of the first"
        assert await a(again.pause(keep_memory=False)), "it is paused a second time"
        assert await a(Sandbox.kill(s.sandbox_id))
        await fails(e2b.SandboxException, lambda: Sandbox.connect(s.sandbox_id))


@case
async def snapshots(sbx):
    """Another sandbox begins with the files, and with variables of its own."""
    async with made(timeout=120, envs={"MINE": "first"}) as s:
        await a(s.files.write("kept/deep/file.txt", "kept"))
        await a(s.commands.run("ln -s file.txt kept/deep/link; chmod 640 kept/deep/file.txt"))
        h = await a(s.commands.run("sleep 1000", background=True, timeout=0))
        snap = await a(s.create_snapshot())
        assert any(p.pid == h.pid for p in await a(s.commands.list()))
        await a(s.files.write("kept/deep/file.txt", "written later"))
        found = await a(Sandbox.list_snapshots(sandbox_id=s.sandbox_id).next_items())
        equal([one.snapshot_id for one in found], [snap.snapshot_id])
        async with made(template=snap.snapshot_id, timeout=120, envs={"MINE": "second"}) as two:
            assert two.sandbox_id != s.sandbox_id
            equal((await a(two.commands.run("cat kept/deep/link; stat -c %a kept/deep/file.txt; echo $MINE"))).stdout, "kept640\nsecond\n")
            equal(await a(two.commands.list()), [])
        assert await a(Sandbox.delete_snapshot(snap.snapshot_id))
        assert not await a(Sandbox.delete_snapshot(snap.snapshot_id))
        await fails(e2b.SandboxException, lambda: Sandbox.create(template=snap.snapshot_id))


@case
async def auto_pause_resume(sbx):
    async with made(timeout=3, lifecycle={"on_timeout": "pause", "auto_resume": True}) as s:
        h = await a(s.commands.run("sleep 1000", background=True, timeout=0))
        await until("the pause", lambda: paused(s), seconds=30)
        equal((await a(s.commands.run("echo back"))).stdout, "back\n")
        assert any(p.pid == h.pid for p in await a(s.commands.list()))
        info = await a(s.get_info())
        equal(info.state.value, "running")
        assert info.end_at.timestamp() - time.time() > 250, info.end_at
    async with made(timeout=3, lifecycle={"on_timeout": "pause", "auto_resume": False}) as s:
        await until("the pause", lambda: paused(s), seconds=30)
        gone(await fails(e2b.SandboxException, lambda: s.commands.run("true")))


@case
async def auto_pause_files(sbx):
    async with made(timeout=5, lifecycle={"on_timeout": {"action": "pause", "keep_memory": False}}) as s:
        await a(s.files.write("kept.txt", "kept"))
        await until("the pause", lambda: paused(s), seconds=60)
        again = await a(Sandbox.connect(s.sandbox_id, timeout=300))
        equal(await a(again.files.read("kept.txt")), "kept")
        equal(await a(again.commands.list()), [])


async def paused(s):
    return (await a(Sandbox.get_info(s.sandbox_id))).state.value == "paused"


@case
async def list_state(sbx):
    mine = {"set": "states", "by": str(os.getpid())}
    async with made(metadata=mine) as one, made(metadata=mine) as two, made(metadata=mine) as three:
        await a(one.pause())
        await a(three.pause())
        for states, want in (("paused",), [one, three]), (("running",), [two]), (("running", "paused"), [one, two, three]):
            query = e2b.SandboxQuery(metadata=mine, state=[e2b.SandboxState(x) for x in states])
            pages, ids = Sandbox.list(query=query, limit=1), []
            while pages.has_next:
                ids += [i.sandbox_id for i in await a(pages.next_items())]
            equal(sorted(ids), sorted(s.sandbox_id for s in want))
