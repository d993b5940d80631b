"""A sandbox hibernates; with its ID as the argument, it goes on with its files and ends."""

import os
import random
import sys

import e2b

LARGE = random.Random(1).randbytes(5_000_000)

if len(sys.argv) == 1:
    sandbox = e2b.Sandbox.create(timeout=300, envs={"MINE": "kept too"})
    sandbox.files.write("deep/note.txt", "kept")
    sandbox.files.write("large", LARGE)
    sandbox.commands.run("chmod 640 deep/note.txt")
    assert sandbox.pause(keep_memory=False)
    print(sandbox.sandbox_id)
else:
    sandbox = e2b.Sandbox.connect(sys.argv[1], timeout=300)
    try:
        assert sandbox.files.read("deep/note.txt") == "kept"
        assert sandbox.files.read("large", format="bytes") == LARGE
        out = sandbox.commands.run("stat -c %a deep/note.txt; echo $MINE")
        assert out.stdout == "640\nkept too\n", out
    finally:
        killed = sandbox.kill()
    assert killed, "kill found no sandbox"
print("the SDK's program passed")
sys.stdout.flush()
os._exit(0)  # see sdk.py
