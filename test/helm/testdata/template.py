"""Builds a template of an image that was not made for Sandlane, and uses a sandbox of it. The
arguments are the image, the template's name, and the command of a server on the port 8000."""

import os
import pathlib
import sys
import tempfile
import time
import urllib.request

from e2b import Sandbox, Template

IMAGE, NAME, SERVER = sys.argv[1:]

context = pathlib.Path(tempfile.mkdtemp())
(context / "one.txt").write_text("one")
(context / "app").mkdir()
(context / "app" / "main.sh").write_text("echo main")

template = (
    Template(file_context_path=str(context))
    .from_image(IMAGE)
    .run_cmd("id -un > /tmp/who")
    .run_cmd("mkdir -p /opt && echo built > /opt/text && rm /srv/removed", user="root")
    .copy("one.txt", "/srv/copied/")
    .copy("app", "/srv/app", mode=0o755)
    .set_envs({"COLOUR": "green"})
    .set_start_cmd(SERVER, "cat /opt/text")
)


def built():
    lines, began = [], time.monotonic()
    try:
        Template.build(template, alias=NAME, on_build_logs=lines.append)
    except BaseException:
        print("".join(f"{line}\n" for line in lines), file=sys.stderr)
        raise
    return time.monotonic() - began


cold, cached = built(), built()
began = time.monotonic()
sandbox = Sandbox.create(NAME, timeout=300)
made = time.monotonic() - began
try:
    read = {path: sandbox.files.read(path).strip() for path in ("/tmp/who", "/opt/text", "/srv/copied/one.txt", "/srv/app/main.sh")}
    assert read == {"/tmp/who": "user", "/opt/text": "built", "/srv/copied/one.txt": "one", "/srv/app/main.sh": "echo main"}, read
    assert not sandbox.files.exists("/srv/removed")
    out = sandbox.commands.run("id -un; echo $COLOUR $OF_IMAGE; sh /srv/app/main.sh; stat -c '%U %a' /srv/app/main.sh").stdout
    assert out == "user\ngreen hello\nmain\nuser 755\n", out
    url = f"{os.environ['E2B_SANDBOX_URL']}/sandboxes/{sandbox.sandbox_id}/8000/"
    deadline = time.monotonic() + 30
    while True:  # the start command may still be starting its server
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                assert answer.status == 200, answer.status
                break
        except urllib.error.HTTPError:
            assert time.monotonic() < deadline, "its server does not answer"
            time.sleep(0.2)
finally:
    sandbox.kill()
print(f"a build took {cold:.1f} s, the same again {cached:.1f} s, a sandbox {made:.2f} s")
print("passed", flush=True)
# pyqwest aborts some interpreters as they end (docs/e2b.md).
os._exit(0)
