"""Cases of E2B's Python SDK against `sandlane up --tls`.

Usage: tls_cases.py sync|async [CASE…]. The SDK is configured by E2B_DOMAIN and
SSL_CERT_FILE alone; so is what a user's own program does here with the standard
library. Each case gives one line of JSON as those of cases.py do.
"""

import asyncio
import base64
import inspect
import json
import os
import pathlib
import socket
import ssl
import sys
import time
import urllib.error
import urllib.request

import e2b
import leaving

SYNC = sys.argv[1] == "sync"
Sandbox = e2b.Sandbox if SYNC else e2b.AsyncSandbox
DOMAIN = os.environ["E2B_DOMAIN"]
PARALLEL = 40
BIG = 5 << 20
CASES = []


def case(f):
    CASES.append(f)
    return f


async def a(x):
    return await x if inspect.isawaitable(x) else x


def equal(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


async def away(f, *args):
    """What a user's own program does, off the event loop."""
    return await asyncio.to_thread(f, *args)


def fetch(url, data=None, headers=None):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers or {}), timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as err:
        return err.code, err.read()


async def listens(sbx, port):
    await a(sbx.commands.run(f"until (: </dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.05; done", timeout=20))


@case
async def tls_commands(sbx):
    equal((await a(sbx.commands.run("echo over TLS"))).stdout, "over TLS\n")
    r = await a(sbx.commands.run(f"head -c {BIG} /dev/zero | tr '\\0' x", timeout=60))
    equal(r.stdout.count("x"), BIG)
    await a(sbx.files.write("note.txt", "hi ü"))
    equal(await a(sbx.files.read("note.txt")), "hi ü")


@case
async def tls_parallel(sbx):
    def one(i):
        return sbx.commands.run(f"echo {i}; sleep 0.2")
    if SYNC:
        results = await asyncio.gather(*(asyncio.to_thread(one, i) for i in range(PARALLEL)))
    else:
        results = await asyncio.gather(*(one(i) for i in range(PARALLEL)))
    equal([r.stdout for r in results], [f"{i}\n" for i in range(PARALLEL)])


@case
async def tls_life(sbx):
    s = await a(Sandbox.create(metadata={"set": "tls"}))
    again = await a(Sandbox.connect(s.sandbox_id))
    equal(again.get_host(3000), f"3000-{s.sandbox_id}.{DOMAIN}")
    found = await a(Sandbox.list(query=e2b.SandboxQuery(metadata={"set": "tls"})).next_items())
    equal([i.sandbox_id for i in found], [s.sandbox_id])
    assert await a(s.is_running())
    assert await a(s.kill())
    assert not await a(s.is_running())


@case
async def tls_killed(sbx):
    """Killed while commands run, all of which share one connection."""
    s = await a(Sandbox.create())
    handles = [await a(s.commands.run(c, background=True)) for c in ("sleep 1000", "while :; do echo x; sleep 0.1; done")]
    waiting = [asyncio.ensure_future(asyncio.to_thread(failure, h) if SYNC else async_failure(h)) for h in handles]
    await a(Sandbox.kill(s.sandbox_id))
    killed = time.monotonic()
    cls = getattr(e2b, "SandboxNotRunningException", e2b.TimeoutException)
    for err in await asyncio.gather(*waiting):
        assert isinstance(err, cls), f"{type(err).__name__} instead of {cls.__name__}: {err}"
    took = time.monotonic() - killed
    assert took < 30, f"the SDK knew {took:.1f} s after the kill"  # a command of its own would end after 60
    equal((await a(sbx.commands.run("echo others go on"))).stdout, "others go on\n")


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
async def tls_host_http(sbx):
    await a(sbx.files.write("index.html", "served by " + sbx.sandbox_id))
    await a(sbx.commands.run("python3 -m http.server 8000", background=True, cwd="/home/user"))
    await listens(sbx, 8000)
    equal(sbx.get_host(8000), f"8000-{sbx.sandbox_id}.{DOMAIN}")
    equal(await away(fetch, f"https://{sbx.get_host(8000)}/"), (200, b"served by " + sbx.sandbox_id.encode()))
    status, body = await away(fetch, f"https://{sbx.get_host(8001)}/")
    equal((status, json.loads(body)["message"]), (502, "The sandbox is running but port is not open"))


def talk(host, messages):
    """A WebSocket client: returns what the server says to each message."""
    name, _, port = host.partition(":")
    plain = socket.create_connection((name, int(port or 443)), timeout=20)
    with ssl.create_default_context().wrap_socket(plain, server_hostname=name) as conn:
        key = base64.b64encode(os.urandom(16)).decode()
        conn.sendall((f"GET /ws HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                      f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        stream = conn.makefile("rb")
        status = stream.readline()
        assert b" 101 " in status, status
        while stream.readline().strip():
            pass
        heard = [hear(stream)]
        for m in messages:
            data = m.encode()
            size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
            conn.sendall(b"\x81" + size + bytes(4) + data)  # a mask of zeros changes nothing
            heard.append(hear(stream))
        return heard


def hear(stream):
    size = stream.read(2)[1]
    if size == 126:
        size = int.from_bytes(stream.read(2), "big")
    return stream.read(size).decode()


@case
async def tls_host_websocket(sbx):
    server = pathlib.Path(__file__).with_name("wsecho.py").read_text()
    await a(sbx.files.write("wsecho.py", server))
    await a(sbx.commands.run("python3 wsecho.py 8080", background=True))
    await listens(sbx, 8080)
    long = "x" * 5000
    equal(await away(talk, sbx.get_host(8080), ["one", "zwei ü", long]), ["welcome", "one", "zwei ü", long])


def multipart(data):
    head = b'--limit\r\nContent-Disposition: form-data; name="file"; filename="up.bin"\r\n\r\n'
    return head + data + b"\r\n--limit--\r\n", {"Content-Type": "multipart/form-data; boundary=limit"}


def damaged(url):
    """The URL with a signature that is wrong in one character."""
    before, _, signature = url.partition("signature=v1_")
    return before + "signature=v1_" + ("A" if signature[0] != "A" else "B") + signature[1:]


@case
async def tls_signed_urls(sbx):
    data = os.urandom(100_000)
    up = sbx.upload_url("signed/up.bin", use_signature_expiration=60)
    assert up.startswith(f"https://49983-{sbx.sandbox_id}.{DOMAIN}/files?"), up
    body, headers = multipart(data)
    equal((await away(fetch, damaged(up), body, headers))[0], 401)
    assert not await a(sbx.files.exists("signed/up.bin"))
    equal((await away(fetch, up, body, headers))[0], 200)
    down = sbx.download_url("signed/up.bin", use_signature_expiration=60)
    equal(await away(fetch, down), (200, data))
    equal(await away(fetch, sbx.download_url("signed/up.bin")), (200, data))
    equal((await away(fetch, damaged(down)))[0], 401)
    equal((await away(fetch, sbx.download_url("signed/up.bin", use_signature_expiration=-60)))[0], 401)
    equal((await away(fetch, down.replace("up.bin", "other.bin")))[0], 401)
    equal((await away(fetch, down, body, headers))[0], 401)  # reading is not writing


async def main():
    wanted = sys.argv[2:]
    shared = await a(Sandbox.create(timeout=600))
    for f in CASES:
        if wanted and f.__name__ not in wanted:
            continue
        began, error = time.monotonic(), ""
        try:
            await asyncio.wait_for(f(shared), 60)
        except BaseException as err:  # a case must not end the others
            error = f"{type(err).__name__}: {err}"
        ms = round((time.monotonic() - began) * 1000)
        print(json.dumps({"name": f.__name__, "ok": not error, "error": error, "ms": ms}), flush=True)
    await a(shared.kill())


leaving.run(main())
