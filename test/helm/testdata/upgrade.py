"""Sandboxes of a pool "released" live through upgrades: each run uses those that the runs before
have left in a file, and makes what is missing. Arguments: that file, and the credential.
"""

import json
import os
import sys
import time

from e2b import ALL_TRAFFIC, Sandbox, Secret

file, credential = sys.argv[1:]
name = "upgrade-test"
with open(file) as f:
    kept = json.load(f)
if not kept:
    Secret.create(name, credential)


def make():
    return Sandbox.create(
        "released",
        timeout=1800,
        envs={"MINE": "kept too"},
        network={
            "deny_out": [ALL_TRAFFIC],
            "allow_out": ["api.example"],
            "rules": {"api.example": [{"transform": {"headers": {"Authorization": f"Bearer {Secret.fill(name)}"}}}]},
        },
    )


def run(sandbox, command):
    return sandbox.commands.run(command, timeout=60).stdout.strip()


def egress(sandbox):
    out = run(sandbox, 'curl -sS --max-time 20 --cacert "$NODE_EXTRA_CA_CERTS" https://api.example/ 2>&1; true')
    assert out == f"api.example Bearer {credential}", out


def fill(sandbox):
    sandbox.files.write("note.txt", "kept")
    sandbox.commands.run("sleep 3600", background=True, timeout=0)
    for _ in range(100):  # until the command's shell has become it
        pid = run(sandbox, "for p in /proc/[0-9]*; do read -r c <$p/comm && [ $c = sleep ] && echo ${p#/proc/}; done; true")
        if pid:
            return pid
        time.sleep(0.1)


def check(sandbox, sleeping):
    assert sandbox.files.read("note.txt") == "kept"
    assert run(sandbox, "echo $MINE") == "kept too"
    if sleeping:
        assert run(sandbox, f"cat /proc/{sleeping}/comm") == "sleep"
    egress(sandbox)


for how in ("runs", "frozen", "hibernates"):
    if how in kept:
        id, sleeping = kept[how]
        sandbox = Sandbox.connect(id, timeout=1800)
        check(sandbox, sleeping if how != "hibernates" else None)
    else:
        sandbox = make()
        sleeping = fill(sandbox)
        assert sleeping, "nothing sleeps"
        kept[how] = (sandbox.sandbox_id, sleeping)
        check(sandbox, sleeping)
    if how != "runs":
        assert sandbox.pause(keep_memory=how == "frozen")

# What only this run has: a sandbox from its first to its last request.
sandbox = make()
try:
    fill(sandbox)
    check(sandbox, None)
    sandbox.set_timeout(600)
    listed = {one.sandbox_id for one in Sandbox.list().next_items()}
    assert {sandbox.sandbox_id, kept["runs"][0]} <= listed, listed
finally:
    assert sandbox.kill(), "kill found no sandbox"
assert not sandbox.is_running()

with open(file, "w") as f:
    json.dump(kept, f)
print("the SDK's program passed")
sys.stdout.flush()
os._exit(0)  # see sdk.py
