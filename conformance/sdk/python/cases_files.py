"""Cases of files."""

import importlib.metadata
import os

import e2b
from suite import SYNC, a, case, equal, together, until


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
    await a(sbx.files.write("/app/src/main.py", "x"))
    equal(((await a(sbx.files.get_info("/app"))).owner, (await a(sbx.files.get_info("/app/src/main.py"))).owner), ("user", "user"))
    assert await a(sbx.files.make_dir("/workspace"))
    await a(sbx.commands.run("ln -s /app/src/main.py link"))
    link = await a(sbx.files.get_info("link"))
    marks = tuple(map(int, importlib.metadata.version("e2b").split("."))) >= (2, 63, 0)  # older SDKs tell a link by its target alone
    equal((link.symlink_target, link.type), ("/app/src/main.py", e2b.FileType.SYMLINK if marks else e2b.FileType.FILE))


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
