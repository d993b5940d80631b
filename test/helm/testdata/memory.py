"""A command that takes all of a sandbox's memory ends; the sandbox does not."""

import os
import sys

import e2b

sandbox = e2b.Sandbox.create(timeout=300)
try:
    try:
        sandbox.commands.run("s=x; while :; do s=$s$s; done", timeout=60)
    except e2b.CommandExitException as error:
        said = f"{error} {error.error} {error.exit_code}"
        assert "out of memory" in said, said
    else:
        raise AssertionError("the command did not end")
    assert sandbox.commands.run("echo alive").stdout == "alive\n"
finally:
    sandbox.kill()
print("the SDK's program passed")
sys.stdout.flush()
os._exit(0)  # see sdk.py
