"""Cases of commands and terminals."""

import e2b
from suite import BIG, PARALLEL, SYNC, a, case, equal, fails, has_text, together, until


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
