"""A sandbox reaches one host by name, with a credential that it never had, and no other.
Arguments: the credential, an address that is closed, the cluster's name server, and two files:
the first is made once requests run, which end once there is the second.
"""

import json
import os
import sys
import time

from e2b import ALL_TRAFFIC, Sandbox, Secret

credential, closed, server, loaded, over = sys.argv[1:]
name = "node-test"
Secret.create(name, credential)
sandbox = Sandbox.create(
    "by-name",
    timeout=300,
    network={
        "deny_out": [ALL_TRAFFIC],
        "allow_out": ["api.example", "plain.example", "kubernetes.default.svc.cluster.local"],
        "rules": {"api.example": [{"transform": {"headers": {"Authorization": f"Bearer {Secret.fill(name)}"}}}]},
    },
)
# The image has no authorities of its own: the variable names egress's.
curl = 'curl -sS --max-time 20 --cacert "$NODE_EXTRA_CA_CERTS"'
answer = f"api.example Bearer {credential}"


def run(command):
    return sandbox.commands.run(command + ' 2>&1; echo ":$?"', timeout=60).stdout.strip()


try:
    out = run(curl + " https://api.example/")
    assert out == answer + ":0", out
    out = run("curl -sSk --max-time 20 https://plain.example/")
    assert out == "plain.example :0", out
    for url, why in (
        ("https://other.example/", "resolve"),
        ("--connect-to other.example:443:api.example:443 https://other.example/", "denied"),
        (f"--max-time 3 https://{closed}/", "timed out"),
        (f"--max-time 3 http://{server}:53/", "timed out"),
        # CoreDNS knows its address, which is the cluster's; a name that it did not know would be an internal error.
        ("https://kubernetes.default.svc.cluster.local/", "access denied"),
    ):
        out = run(curl + " -k " + url)
        assert not out.endswith(":0") and why in out.lower(), (url, out)
    assert credential not in run("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")
    load = sandbox.commands.run(
        f"while [ ! -e /tmp/over ]; do {curl} https://api.example/ 2>&1; echo; done", background=True, timeout=280
    )
    open(loaded, "w").close()
    while not os.path.exists(over):
        time.sleep(0.1)
    out = run(curl + " https://api.example/")  # new connections go on
    assert out == answer + ":0", out
    sandbox.files.write("/tmp/over", "")
    lines = [line for line in load.wait().stdout.splitlines() if line]
    ok = lines.count(answer)
    broken = [line for line in lines if line.startswith("curl:")]
    wrong = [line for line in lines if line != answer and line not in broken]
    print(json.dumps({"OK": ok, "Broken": len(broken), "Wrong": wrong}))
finally:
    sandbox.kill()
    Secret.destroy(name)
print("the SDK's program passed")
sys.stdout.flush()
os._exit(0)  # see sdk.py
