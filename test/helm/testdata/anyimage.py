"""A sandbox of an image that has neither sandboxd nor a shell has files, and says what a command lacks."""

import os
import sys

from e2b import InvalidArgumentException, Sandbox

sbx = Sandbox.create(sys.argv[1], timeout=120)
sbx.files.write("kept.txt", "kept")
assert sbx.files.read("kept.txt") == "kept"
try:
    sbx.commands.run("true")
    raise AssertionError("a shell in an image that has none")
except InvalidArgumentException as err:
    assert "/bin/bash" in str(err), err
sbx.kill()
print("passed", flush=True)
os._exit(0)
