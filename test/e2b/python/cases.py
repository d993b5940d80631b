"""Cases of E2B's Python SDK against a running Sandlane.

Usage: cases.py sync|async. The SDK is configured by its usual variables; each
case is a function and gives one line of JSON: name, ok, error, ms. The Go test
beside this folder starts it and knows which cases there must be.
"""

import asyncio
import concurrent.futures
import inspect
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

import e2b
import leaving

SYNC = sys.argv[1] == "sync"
Sandbox = e2b.Sandbox if SYNC else e2b.AsyncSandbox
GATEWAY = os.environ["E2B_SANDBOX_URL"]
ELSEWHERE = os.environ["TEST_ELSEWHERE_URL"]  # the gateway, seen from another address
# The domain that gateways say, and a web server that is in sandboxes.
DOMAIN = os.environ.get("TEST_DOMAIN", "localhost:" + GATEWAY.rsplit(":")[-1])
SERVER = os.environ.get("TEST_SERVER", "python3 -m http.server")
# Whether each start of a container has a boot ID of its own; on a cluster it is the node's.
OWN_BOOT_ID = os.environ.get("TEST_BOOT_ID", "own") == "own"
PARALLEL = 50
BIG = 10 << 20
CASES = []


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


class made:
    """A sandbox for the length of a with statement."""

    def __init__(self, **options):
        self.options = options

    async def __aenter__(self):
        self.sandbox = await a(Sandbox.create(**self.options))
        return self.sandbox

    async def __aexit__(self, *_):
        await a(self.sandbox.kill())


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


@case
async def create_metadata_envs(sbx):
    async with made(metadata={"purpose": "a b&c=d"}, envs={"GREETING": "hello world"}, timeout=120) as s:
        info = await a(s.get_info())
        equal(info.metadata, {"purpose": "a b&c=d"})
        equal((await a(s.commands.run("echo $GREETING"))).stdout, "hello world\n")


@case
async def command_output(sbx):
    out, err = [], []
    r = await a(sbx.commands.run("echo one; echo two >&2", on_stdout=out.append, on_stderr=err.append))
    equal((r.stdout, r.stderr, r.exit_code, "".join(out), "".join(err)), ("one\n", "two\n", 0, "one\n", "two\n"))
    r = await a(sbx.commands.run("echo $A; pwd", envs={"A": "ä"}, cwd="/tmp"))
    equal(r.stdout, "ä\n/tmp\n")


@case
async def command_exit_code(sbx):
    err = await fails(e2b.CommandExitException, lambda: sbx.commands.run("echo no >&2; exit 7"))
    equal((err.exit_code, err.stderr), (7, "no\n"))


@case
async def command_stdin(sbx):
    h = await a(sbx.commands.run("read -r line; echo got $line", background=True, stdin=True))
    await a(sbx.commands.send_stdin(h.pid, "some words\n"))
    equal((await a(h.wait())).stdout, "got some words\n")


@case
async def command_background_kill(sbx):
    h = await a(sbx.commands.run("sleep 1000", background=True))
    assert h.pid in [p.pid for p in await a(sbx.commands.list())]
    assert await a(sbx.commands.kill(h.pid))
    await fails(e2b.CommandExitException, h.wait)
    assert not await a(sbx.commands.kill(h.pid))


@case
async def command_reconnect(sbx):
    h = await a(sbx.commands.run("read -r x; echo later $x", background=True, stdin=True))
    await a(h.disconnect())
    again = await a(sbx.commands.connect(h.pid))
    await a(sbx.commands.send_stdin(h.pid, "on\n"))
    equal((await a(again.wait())).stdout, "later on\n")


@case
async def command_timeout(sbx):
    await fails(e2b.TimeoutException, lambda: sbx.commands.run("sleep 1000", timeout=1))
    await until("the end of a command whose time is over",
                lambda: none_runs(sbx, "sleep 1000"))


async def none_runs(sbx, text):
    return all(text not in " ".join(p.args) for p in await a(sbx.commands.list()))


@case
async def command_users(sbx):
    equal((await a(sbx.commands.run("id -un; echo $HOME"))).stdout, "user\n/home/user\n")
    equal((await a(sbx.commands.run("id -un; echo $HOME", user="root"))).stdout, "root\n/root\n")
    equal((await a(sbx.commands.run("sudo id -un; sudo -u user id -un"))).stdout, "root\nuser\n")
    await fails(Exception, lambda: sbx.commands.run("id", user="nobody-here"))
    secrets = "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c ^SANDBOXD_ || true"
    equal((await a(sbx.commands.run(secrets, user="root"))).stdout, "0\n")


@case
async def command_big_output(sbx):
    r = await a(sbx.commands.run(f"head -c {BIG} /dev/zero | tr '\\0' x", timeout=120))
    equal(len(r.stdout), BIG)
    equal(r.stdout.count("x"), BIG)


@case
async def command_parallel(sbx):
    results = await together([lambda i=i: sbx.commands.run(f"echo {i}; sleep 0.2") for i in range(PARALLEL)])
    equal([r.stdout for r in results], [f"{i}\n" for i in range(PARALLEL)])


@case
async def pty(sbx):
    size, seen = e2b.PtySize(rows=33, cols=77), []
    if SYNC:
        t = sbx.pty.create(size)
        sbx.pty.send_stdin(t.pid, b"stty size; tty; exit\n")
        try:
            t.wait(on_pty=seen.append)
        except e2b.CommandExitException:
            pass
    else:
        t = await sbx.pty.create(size, on_data=seen.append)
        await sbx.pty.send_stdin(t.pid, b"stty size; tty; exit\n")
        await t.wait()
    text = b"".join(bytes(s) for s in seen).decode()
    assert "33 77" in text and "/dev/pts/" in text, text


@case
async def pty_resize_kill(sbx):
    on = {} if SYNC else {"on_data": lambda _: None}
    t = await a(sbx.pty.create(e2b.PtySize(rows=10, cols=20), **on))
    await a(sbx.pty.resize(t.pid, e2b.PtySize(rows=44, cols=55)))
    await a(sbx.pty.send_stdin(t.pid, b"stty size > /tmp/size\n"))
    await until("the new size", lambda: has_text(sbx, "/tmp/size", "44 55"))
    assert await a(sbx.pty.kill(t.pid))


async def has_text(sbx, path, text):
    return await a(sbx.files.exists(path)) and text in await a(sbx.files.read(path))


@case
async def files_basic(sbx):
    info = await a(sbx.files.write("dir/one.txt", "erste Zeile ü\n"))
    equal(info.path, "/home/user/dir/one.txt")
    equal(await a(sbx.files.read("dir/one.txt")), "erste Zeile ü\n")
    assert await a(sbx.files.exists("dir")) and not await a(sbx.files.exists("nowhere"))
    assert await a(sbx.files.make_dir("dir/sub")) and not await a(sbx.files.make_dir("dir/sub"))
    equal(sorted(e.name for e in await a(sbx.files.list("dir"))), ["one.txt", "sub"])
    equal((await a(sbx.files.rename("dir/one.txt", "dir/two.txt"))).path, "/home/user/dir/two.txt")
    entry = await a(sbx.files.get_info("dir/two.txt"))
    equal((entry.owner, entry.size, entry.type), ("user", len("erste Zeile ü\n".encode()), e2b.FileType.FILE))
    await a(sbx.files.remove("dir"))
    assert not await a(sbx.files.exists("dir"))
    await a(sbx.files.write("/root/secret", "r", user="root"))
    equal((await a(sbx.files.get_info("/root/secret", user="root"))).owner, "root")


@case
async def files_bytes_stream(sbx):
    data = os.urandom(3 << 20)
    await a(sbx.files.write("blob", data))
    equal(bytes(await a(sbx.files.read("blob", format="bytes"))), data)
    parts, stream = [], await a(sbx.files.read("blob", format="stream"))
    if SYNC:
        parts = list(stream)
    else:
        async for part in stream:
            parts.append(part)
    equal(b"".join(parts), data)


@case
async def files_several(sbx):
    many = [{"path": f"many/{i}", "data": str(i)} for i in range(20)]
    infos = await a(sbx.files.write_files(many))
    equal([i.path for i in infos], [f"/home/user/many/{i}" for i in range(20)])
    reads = await together([lambda i=i: sbx.files.read(f"many/{i}") for i in range(20)])
    equal(reads, [str(i) for i in range(20)])


@case
async def files_watch(sbx):
    await a(sbx.files.make_dir("watched/deep"))
    seen = []
    on = {} if SYNC else {"on_event": seen.append}
    w = await a(sbx.files.watch_dir("watched", recursive=True, **on))
    await a(sbx.files.write("watched/deep/file", "x"))

    def found():
        if SYNC:
            seen.extend(w.get_new_events())
        return any(e.name == "deep/file" and e.type == e2b.FilesystemEventType.CREATE for e in seen)

    await until("the event", found)
    await a(w.stop())


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
        equal([(i.sandbox_id, i.metadata) for i in found], [(s.sandbox_id, odd)])
        equal(await a(Sandbox.list(query=e2b.SandboxQuery(metadata={"a": "other"})).next_items()), [])


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
async def pause_resume(sbx):
    """A process counts on where it stood: it is the same one, and did not run meanwhile."""
    async with made(timeout=120) as s:
        await a(s.files.write("kept.txt", "kept"))
        h = await a(s.commands.run("i=0; while :; do echo $((i+=1)) > count; sleep 0.05; done", background=True, timeout=0))
        await until("a count", lambda: s.files.exists("count"))
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
async def access_secure(sbx):
    host = sbx.get_host(49983)
    equal(fetch(host, "/envs")[0], 401)
    equal(fetch(host, "/envs", {"X-Access-Token": "wrong"})[0], 401)
    equal(fetch(host, "/init")[0], 404)


@case
async def access_public(sbx):
    await a(sbx.files.write("index.html", "served by " + sbx.sandbox_id))
    await serve(sbx, 8000)
    equal(fetch(sbx.get_host(8000)), (200, "served by " + sbx.sandbox_id))
    equal(fetch(sbx.get_host(8001))[0], 502)


@case
async def access_private(sbx):
    async with made(network={"allow_public_traffic": False}) as s:
        await a(s.files.write("index.html", "private"))
        await serve(s, 8000)
        host, token = s.get_host(8000), s.traffic_access_token
        equal(fetch(host)[0], 403)
        equal(fetch(host, headers={"e2b-traffic-access-token": "wrong"})[0], 403)
        equal(fetch(host, headers={"e2b-traffic-access-token": token}), (200, "private"))


@case
async def metrics(sbx):
    m = (await a(sbx.get_metrics()))[-1]
    assert m.cpu_count > 0 and 0 < m.mem_used < m.mem_total and 0 < m.disk_used < m.disk_total, m


@case
async def host_name(sbx):
    equal(sbx.get_host(3000), f"3000-{sbx.sandbox_id}.{DOMAIN}")


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


def gone(err):
    """The SDK says that the sandbox is gone; newer ones have a class for it."""
    cls = getattr(e2b, "SandboxNotRunningException", e2b.TimeoutException)
    assert isinstance(err, cls), f"{type(err).__name__} instead of {cls.__name__}: {err}"


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


async def main():
    shared = await a(Sandbox.create(timeout=600))
    for f in CASES:
        began, error = time.monotonic(), ""
        try:
            await asyncio.wait_for(f(shared), 90)
        except BaseException as err:  # a case must not end the others
            error = f"{type(err).__name__}: {err}"
        ms = round((time.monotonic() - began) * 1000)
        print(json.dumps({"name": f.__name__, "ok": not error, "error": error, "ms": ms}), flush=True)
    await a(shared.kill())


leaving.run(main())
