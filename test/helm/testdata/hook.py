"""A template's post-start hook has run when a sandbox is there."""

import os
import sys

import e2b

sandbox = e2b.Sandbox.create("hooked", timeout=300)
try:
    made = sandbox.files.read("/tmp/hook").strip()
    assert made == sandbox.commands.run("echo $HOSTNAME").stdout.strip() != "", made
finally:
    sandbox.kill()
print("the SDK's program passed")
sys.stdout.flush()
os._exit(0)  # see sdk.py
