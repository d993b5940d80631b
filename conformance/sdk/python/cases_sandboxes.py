"""Cases of what is made, found, extended and ended."""

import asyncio
import os
import subprocess
import sys

import e2b
from suite import DOMAIN, Sandbox, a, case, equal, made, own, until


@case
async def create_metadata_envs(sbx):
    async with made(metadata={"purpose": "a b&c=d"}, envs={"GREETING": "hello world"}, timeout=120) as s:
        info = await a(s.get_info())
        equal(own(info.metadata), {"purpose": "a b&c=d"})
        equal((await a(s.commands.run("echo $GREETING"))).stdout, "hello world\n")


@case
async def create_env(sbx):
    async with made(template="by-env") as s:
        equal((await a(s.get_info())).template_id, "by-env")
        equal((await a(s.commands.run("echo here"))).stdout, "here\n")


@case
async def get_info(sbx):
    info = await a(sbx.get_info())
    equal((info.sandbox_id, info.state.value), (sbx.sandbox_id, "running"))
    assert info.started_at < info.end_at and info.cpu_count > 0 and info.memory_mb > 0, info
    equal((await a(Sandbox.get_info(sbx.sandbox_id))).template_id, info.template_id)


@case
async def set_timeout(sbx):
    async with made(timeout=60) as s:
        before = (await a(s.get_info())).end_at
        await a(s.set_timeout(1800))
        later = (await a(s.get_info())).end_at
        assert 1600 < (later - before).total_seconds() < 1800, (before, later)
        await a(s.set_timeout(1))
        await until("the end of its time", lambda: ended(s), seconds=30)


async def ended(s):
    return not await a(s.is_running())


@case
async def is_running_kill(sbx):
    s = await a(Sandbox.create())
    assert await a(s.is_running())
    assert await a(s.kill())
    assert not await a(s.is_running())
    assert not await a(Sandbox.kill(s.sandbox_id))


@case
async def list_pages(sbx):
    mine = {"set": "pages", "by": str(os.getpid())}  # other SDKs run beside this one
    async with made(metadata=mine) as one, made(metadata=mine) as two:
        query = e2b.SandboxQuery(metadata=mine)
        pages, ids = Sandbox.list(query=query, limit=1), []
        while pages.has_next:
            items = await a(pages.next_items())
            assert len(items) <= 1, f"a page of {len(items)}"
            ids += [i.sandbox_id for i in items]
        equal(sorted(ids), sorted([one.sandbox_id, two.sandbox_id]))


@case
async def list_metadata(sbx):
    odd = {"a": "b c&d=e", "k/1": "v%20ü", "by": str(os.getpid())}
    async with made(metadata=odd) as s:
        found = await a(Sandbox.list(query=e2b.SandboxQuery(metadata=odd)).next_items())
        equal([(i.sandbox_id, own(i.metadata)) for i in found], [(s.sandbox_id, odd)])
        equal(await a(Sandbox.list(query=e2b.SandboxQuery(metadata={"a": "other"})).next_items()), [])


@case
async def connect_process(sbx):
    """Another process, which knows only the ID."""
    await a(sbx.files.write("shared.txt", "from the first"))
    code = ("import sys, e2b; s = e2b.Sandbox.connect(sys.argv[1]);"
            "print(s.files.read('shared.txt'), s.commands.run('echo and second').stdout)")
    r = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code, sbx.sandbox_id],
                                capture_output=True, text=True, timeout=60)
    equal((r.returncode, r.stdout.strip(), r.stderr), (0, "from the first and second", ""))


@case
async def metrics(sbx):
    m = (await a(sbx.get_metrics()))[-1]
    assert m.cpu_count > 0 and 0 < m.mem_used < m.mem_total and 0 < m.disk_used < m.disk_total, m


@case
async def host_name(sbx):
    equal(sbx.get_host(3000), f"3000-{sbx.sandbox_id}.{DOMAIN}")
