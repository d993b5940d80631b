"""Cases of a sandbox that may reach one host by name, with a credential that it never had.
Its arguments are a file with the authorities that the sandbox is to trust, and addresses that
it must not reach. Each case gives one line of JSON, as those of cases.py do.
"""

import inspect
import json
import os
import sys
import time
import urllib.request

from e2b import Sandbox, Secret
from e2b.exceptions import SandboxException, SecretException, SecretNotFoundException

KEY = "hunter2-never-in-the-sandbox"
CA = "/tmp/trusted.pem"


def curl(sbx, *args):
    """The answer's body, or curl's exit code and its error."""
    command = " ".join(["curl", "-sS", "--max-time", "20", "--cacert", CA, *args])
    out = sbx.commands.run(command + ' 2>&1; echo ":$?"').stdout.strip()
    body, _, code = out.rpartition(":")
    return body.strip(), int(code)


def allowed(sbx):
    assert curl(sbx, "https://api.example/who") == ("api.example Bearer " + KEY, 0), curl(sbx, "https://api.example/who")


# Without a URL it tells whether this Java can run: those of a distribution may need more of
# /etc than sandboxes of the local node have.
JAVA = """public class Fetch { public static void main(String[] a) throws Exception {
    if (a.length == 0) { java.security.Security.getProviders(); return; }
    System.out.write(new java.net.URL(a[0]).openStream().readAllBytes()); System.out.flush(); } }"""


def trusted(sbx, java=True):
    """Programs trust egress's certificates without being told: curl, git, Python, Node, Java."""
    if java:
        sbx.files.write("/tmp/Fetch.java", JAVA)
    for command in (
        "curl -sS https://api.example/who",
        "git ls-remote https://api.example/repo || true",
        "python3 -c \"import urllib.request as u; print(u.urlopen('https://api.example/who').read().decode())\"",
        "! python3 -c 'import requests' || python3 -c \"import requests; print(requests.get('https://api.example/who').text)\"",
        "! ls /tmp/Fetch.java || for j in /usr/lib/jvm/*/bin/java; do ! $j /tmp/Fetch.java || $j /tmp/Fetch.java https://api.example/who || exit 1; done",
        "! command -v node || node -e \"fetch('https://api.example/who').then(r => r.text()).then(console.log)\"",
    ):
        out = sbx.commands.run("(" + command + ") 2>&1 || echo it failed").stdout
        assert "it failed" not in out, (command, out)
        assert "certificate" not in out.lower(), (command, out)
        if not command.startswith(("git", "!")):
            assert KEY in out, (command, out)


def replaced(sbx):
    """What the sandbox sends in the header's place does not stand beside it."""
    got = curl(sbx, "-H", "'authorization: mine'", "-H", "'Connection: authorization'", "https://api.example/who")
    assert got == ("api.example Bearer " + KEY, 0), got


def passed_on(sbx):
    """A host without a rule is reached as it is."""
    got = curl(sbx, "-H", "'Authorization: mine'", "https://plain.example/who")
    assert got == ("plain.example mine", 0), got


def plain_http(sbx):
    """Port 80 never carries a credential."""
    assert curl(sbx, "http://api.example/who") == ("api.example", 0), curl(sbx, "http://api.example/who")


def other_names(sbx):
    body, code = curl(sbx, "https://other.example/")
    assert code == 6, (body, code)  # could not resolve
    body, code = curl(sbx, "--connect-to other.example:443:api.example:443 https://other.example/")
    assert code == 35 and "access denied" in body, (body, code)
    body, code = curl(sbx, "-H 'Host: other.example' http://api.example/")
    assert "other.example" in body and "may not connect" in body, (body, code)


def forged(sbx):
    body, code = curl(sbx, "-H 'Host: plain.example' https://api.example/who")
    assert KEY not in body and "another host" in body, (body, code)


def addresses(sbx):
    for address in sys.argv[2:]:
        body, code = curl(sbx, "-k", f"https://{address}/")
        assert code != 0, (address, body)
    body, code = curl(sbx, "-k", "--connect-to ::api.example:443 https://192.0.2.1/")  # no SNI
    assert code != 0, (body, code)


def closed(sbx):
    """A name that is allowed, and leads to an address that is closed to sandboxes."""
    body, code = curl(sbx, "https://closed.example/")
    assert code == 35 and "access denied" in body, (body, code)
    body, code = curl(sbx, "http://closed.example/")
    assert "no address that sandboxes may reach" in body and "closed.example" in body, (body, code)


def other_ways(sbx):
    """QUIC and other ports have no way, and names by TCP have the answers of those by UDP."""
    out = sbx.commands.run(
        "python3 - <<'E'\n"
        "import socket\n"
        "ns = open('/etc/resolv.conf').read().split()[1]\n"
        "def answered(port, by):\n"
        "    s = socket.socket(socket.AF_INET, by); s.settimeout(3)\n"
        "    try:\n"
        "        s.connect((ns, port)); s.send(b'\\xc0' + bytes(1199)); return len(s.recv(1500))\n"
        "    except OSError: return 'no'\n"
        "print(answered(443, socket.SOCK_DGRAM), answered(853, socket.SOCK_STREAM), answered(8080, socket.SOCK_STREAM))\n"
        "def exists(name):\n"
        "    q = b'\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + b''.join(bytes([len(p)]) + p.encode() for p in name.split('.')) + b'\\0\\0\\1\\0\\1'\n"
        "    s = socket.create_connection((ns, 53), 5); s.send(len(q).to_bytes(2, 'big') + q); a = s.recv(1500)[2:]\n"
        "    return a[3] & 15, a[7]\n"
        "print(exists('api.example'), exists('data.tunnel.example'))\n"
        "E").stdout.split("\n")
    assert out[:2] == ["no no no", "(0, 1) (3, 0)"], out


def neighbour(_):
    """Another sandbox has none of this one's names and rules."""
    other = Sandbox.create(timeout=120, network={"deny_out": ["0.0.0.0/0"], "allow_out": ["plain.example"]})
    try:
        with open(sys.argv[1]) as authorities:
            other.files.write(CA, authorities.read())
        body, code = curl(other, "https://api.example/who")
        assert code == 6, (body, code)
        body, code = curl(other, "--connect-to api.example:443:plain.example:443 https://api.example/who")
        assert code == 35 and "access denied" in body, (body, code)
    finally:
        other.kill()


def shown(sbx):
    """The API shows a rule without its value."""
    text = str(sbx.get_info().network)
    assert KEY not in text and "***" in text, text


def text_records(sbx):
    out = sbx.commands.run(
        "python3 - <<'E'\n"
        "import socket\n"
        "ns = open('/etc/resolv.conf').read().split()[1]\n"
        "def ask(name, kind):\n"
        "    q = b'\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + b''.join(bytes([len(p)]) + p.encode() for p in name.split('.')) + b'\\0' + bytes([0, kind, 0, 1])\n"
        "    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.sendto(q, (ns, 53))\n"
        "    a = s.recv(1500); return a[3] & 15, a[7]\n"
        "print(ask('data.tunnel.example', 16), ask('api.example', 16), ask('api.example', 28), ask('api.example', 65), ask('api.example', 1))\n"
        "E").stdout.strip()
    assert out == "(3, 0) (0, 0) (0, 0) (0, 0) (0, 1)", out


def never_inside(sbx):
    """No environment, file or memory of the sandbox's processes has the credential."""
    out = sbx.commands.run(
        f"grep -rls '{KEY[:7]}''{KEY[7:]}' /proc/[0-9]*/environ /home /tmp /etc /run 2>/dev/null | grep -v self || true", user="root").stdout
    assert out.strip() == "", out


def updated(sbx):
    """Rules that are replaced hold for what is connected from then on."""
    sbx.update_network({"deny_out": ["0.0.0.0/0"], "allow_out": ["plain.example"]})
    for _ in range(50):  # egress follows by a watch
        body, code = curl(sbx, "https://api.example/who")
        if code == 6:
            break
        time.sleep(0.1)
    assert code == 6, (body, code)
    assert curl(sbx, "https://plain.example/who") == ("plain.example", 0)


def secrets(_):
    """Secrets by the SDK: names are in lower case, values come back nowhere."""
    made = Secret.create("E2E-Key", KEY + "-1", metadata={"team": "a"})
    try:
        assert (made.name, made.version, made.metadata) == ("e2e-key", 1, {"team": "a"}) and made.secret_id.startswith("sec_"), made
        try:
            Secret.create("e2e-key", KEY + "-2")
            raise AssertionError("made twice")
        except SecretException as err:
            assert "Secret cannot be modified in its current state" in str(err), err
        assert Secret.update("E2E-KEY", KEY + "-2").version == 2
        again = Secret.update(made.secret_id, KEY + "-3", metadata={})
        assert (again.version, again.metadata) == (3, {}) and again.updated_at > made.updated_at, again
        assert Secret.get_info(made.secret_id) == Secret.get_info("e2e-key") == again
        others = [Secret.create(f"e2e-{i}", KEY).name for i in range(2)]
        names, pages = [], Secret.list(limit=2)
        while pages.has_next:
            page = pages.next_items()
            assert 0 < len(page) <= 2, page
            names += [one.name for one in page]
        assert sorted(names) == sorted(["e2e-key", *others]), names
        assert all(Secret.destroy(name) for name in others)
        assert not Secret.exists("e2e-0") and not Secret.destroy("e2e-0")
        try:
            Secret.get_info("sec_" + "0" * 32)
            raise AssertionError("found")
        except SecretNotFoundException:
            pass
        try:
            Secret.create("no.name", KEY)
            raise AssertionError("made")
        except SecretException as err:
            assert "Invalid secrets request" in str(err) and KEY not in str(err), err
    finally:
        assert Secret.destroy("e2e-key")


def bearer(sbx, want):
    """What the host saw, once egress has followed by its watch."""
    for _ in range(100):
        got, _ = curl(sbx, "https://api.example/who")
        if want in got:
            return got
        time.sleep(0.1)
    raise AssertionError(got)


def placeholder(_):
    """A rule names a secret; each request gets the value of the time."""
    sbx = Sandbox.create(timeout=120, network={
        "deny_out": ["0.0.0.0/0"], "allow_out": ["api.example"],
        "rules": {"api.example": [{"transform": {"headers": {"Authorization": "Bearer " + Secret.fill("Late-Key")}}}]},
    })
    try:
        with open(sys.argv[1]) as authorities:
            sbx.files.write(CA, authorities.read())
        assert "Bearer ${e2b.secrets.Late-Key}" in str(sbx.get_info().network), sbx.get_info().network
        got = bearer(sbx, "no such secret")
        assert '"code":502' in got and "late-key" in got, got
        Secret.create("late-key", KEY + "-early")
        try:
            assert bearer(sbx, "-early") == f"api.example Bearer {KEY}-early"
            Secret.update("late-key", KEY + "-later")
            assert bearer(sbx, "-later") == f"api.example Bearer {KEY}-later"
            never_inside(sbx)
        finally:
            Secret.destroy("late-key")
        bearer(sbx, "no such secret")
    finally:
        sbx.kill()


def late_rules(_):
    """A sandbox that was made without rules gets some, and its programs trust egress from then on."""
    sbx = Sandbox.create(timeout=120, network={"deny_out": ["0.0.0.0/0"], "allow_out": ["api.example"]})
    try:
        assert "SSL_CERT_FILE" not in sbx.commands.run("env").stdout
        sbx.update_network({
            "deny_out": ["0.0.0.0/0"], "allow_out": ["api.example"],
            "rules": {"api.example": [{"transform": {"headers": {"Authorization": "Bearer " + KEY}}}]},
        })
        for _ in range(100):  # egress follows by a watch
            out = sbx.commands.run("curl -sS --max-time 20 https://api.example/who 2>&1 || true").stdout
            if KEY in out:
                break
            time.sleep(0.1)
        assert KEY in out, out
        trusted(sbx, java=False)
    finally:
        sbx.kill()


def paused_rules(_):
    """Rules that a sandbox gets while it is paused hold once it goes on, and its programs trust egress."""
    forgets = "keep_memory" in inspect.signature(Sandbox.pause).parameters
    for options in [{}] + [{"keep_memory": False}] * forgets:
        sbx = Sandbox.create(timeout=120, network={"deny_out": ["0.0.0.0/0"], "allow_out": ["plain.example"]})
        try:
            sbx.pause(**options)
            sbx.update_network({
                "deny_out": ["0.0.0.0/0"], "allow_out": ["api.example"],
                "rules": {"api.example": [{"transform": {"headers": {"Authorization": "Bearer " + KEY}}}]},
            })
            sbx = Sandbox.connect(sbx.sandbox_id, timeout=120)
            for _ in range(100):  # egress follows by a watch
                out = sbx.commands.run("curl -sS --max-time 20 https://api.example/who 2>&1 || true").stdout
                if KEY in out:
                    break
                time.sleep(0.1)
            assert KEY in out, (options, out)
            trusted(sbx, java=False)
            body, code = curl(sbx, "-k", "https://plain.example/")
            assert code == 6, (options, body, code)  # could not resolve
        finally:
            sbx.kill()


def first_request(_):
    """A sandbox that a first request makes reaches the names of its pool alone, and no update opens more."""
    name = f"first-{os.getpid()}"
    urllib.request.urlopen(urllib.request.Request(os.environ["E2B_SANDBOX_URL"] + "/health", headers={
        "X-Sandbox-Id": name, "X-Sandbox-Pool": "default/base", "X-Sandbox-Port": "49983"}), timeout=30).close()
    sbx = Sandbox.connect(name)
    try:
        with open(sys.argv[1]) as authorities:
            sbx.files.write(CA, authorities.read())
        assert curl(sbx, "https://plain.example/who") == ("plain.example", 0), curl(sbx, "https://plain.example/who")
        body, code = curl(sbx, "https://api.example/who")
        assert code == 6, (body, code)  # could not resolve
        body, code = curl(sbx, "--connect-to api.example:443:plain.example:443 https://api.example/who")
        assert code == 35 and "access denied" in body, (body, code)
        assert "plain.example" in str(sbx.get_info().network), sbx.get_info().network
        try:
            sbx.update_network({})
            raise AssertionError("updated")
        except SandboxException as err:
            assert "firstRequest.egress" in str(err), err
    finally:
        sbx.kill()


def main():
    sbx = Sandbox.create(
        timeout=300,
        network={
            "deny_out": ["0.0.0.0/0"],
            "allow_out": ["api.example", "plain.example", "closed.example"],
            "rules": {"api.example": [{"transform": {"headers": {"Authorization": "Bearer " + KEY}}}]},
        },
    )
    with open(sys.argv[1]) as authorities:
        sbx.files.write(CA, authorities.read())
    for case in (allowed, trusted, replaced, passed_on, plain_http, other_names, forged, addresses, closed, other_ways, text_records, neighbour, shown, never_inside, updated, secrets, placeholder, late_rules, paused_rules, first_request):
        began, error = time.monotonic(), ""
        try:
            case(sbx)
        except BaseException as err:  # a case must not end the others
            error = f"{type(err).__name__}: {err}"
        print(json.dumps({"name": case.__name__, "ok": not error, "error": error, "ms": round((time.monotonic() - began) * 1000)}), flush=True)
    sbx.kill()


main()
