"""The first program of a user of E2B's Python SDK: create, command, files, kill."""

import os
import sys

import e2b

sandbox = e2b.Sandbox.create(timeout=300)
try:
    out = sandbox.commands.run("echo from a real node; id -un")
    assert out.stdout == "from a real node\nuser\n", out
    sandbox.files.write("note.txt", "kept")
    assert sandbox.files.read("note.txt") == "kept"
    assert sandbox.commands.run("cat note.txt").stdout == "kept"
    assert sandbox.is_running()
finally:
    killed = sandbox.kill()
assert killed, "kill found no sandbox"
assert not sandbox.is_running()
print("the SDK's program passed")
sys.stdout.flush()
# pyqwest aborts some interpreters as they end (docs/e2b.md).
os._exit(0)
