"""Cases of a sandbox whose image was not made for it: what the image says counts, and
sandboxd, which the pool adds, does the rest. The argument names the pool, which is also the
kind of image. Each case gives one line of JSON, as those of cases.py do.
"""

import asyncio
import json
import os
import sys
import time
import urllib.request

import leaving
from e2b import InvalidArgumentException, Sandbox

BARE = sys.argv[1] == "bare"


def files(sbx):
    sbx.files.write("/app/deep/main.py", "text")
    assert sbx.files.read("/app/deep/main.py") == "text"
    assert [e.name for e in sbx.files.list("/app")] == ["deep"]


def server(sbx):
    """The template's command serves, and is reached like any port."""
    url = f"{os.environ['E2B_SANDBOX_URL']}/sandboxes/{sbx.sandbox_id}/8000/"
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert answer.status == 200, answer.status


def commands(sbx):
    if BARE:
        try:
            sbx.commands.run("true")
            raise AssertionError("a shell in an image that has none")
        except InvalidArgumentException as err:
            assert "/bin/bash" in str(err), err
        return
    out = sbx.commands.run("echo $GREETING; pwd; id -un; sudo id -un", envs={"MORE": "1"}).stdout
    assert out.split("\n") == ["hello", "/work", "user", "root", ""], out


def pause(sbx):
    sbx.files.write("/tmp/kept", "kept")
    sbx.pause()
    again = Sandbox.connect(sbx.sandbox_id)
    assert again.files.read("/tmp/kept") == "kept"
    server(again)


async def main():
    sbx = Sandbox.create(sys.argv[1], timeout=300)
    for case in (files, server, commands, pause):
        began, error = time.monotonic(), ""
        try:
            await asyncio.wait_for(asyncio.to_thread(case, sbx), 60)
        except BaseException as err:  # a case must not end the others
            error = f"{type(err).__name__}: {err}"
        print(json.dumps({"name": case.__name__, "ok": not error, "error": error, "ms": round((time.monotonic() - began) * 1000)}), flush=True)
    sbx.kill()


leaving.run(main())
