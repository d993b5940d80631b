"""Cases of templates that the SDK builds. The argument names an image of the tests' registry.
Each case gives one line of JSON, as those of cases.py do.
"""

import asyncio
import json
import os
import pathlib
import sys
import tempfile
import time
import urllib.request

import leaving
from e2b import BuildException, Sandbox, Template

IMAGE = sys.argv[1]
NAME = "tried"
made = {}


def context():
    """A folder with files of a few kinds."""
    path = pathlib.Path(tempfile.mkdtemp())
    (path / "one.txt").write_text("one")
    (path / "app" / "deep").mkdir(parents=True)
    (path / "app" / "main.sh").write_text("echo main")
    (path / "app" / "deep" / "link").symlink_to("../main.sh")
    return str(path)


def recipe(text):
    return (
        Template(file_context_path=context())
        .from_image(IMAGE)
        .run_cmd("echo built > /tmp/by-user; id -un > /tmp/who")
        .run_cmd(f"mkdir -p /opt; echo {text} > /opt/text; rm /srv/old/removed", user="root")
        .copy("one.txt", "/srv/copied/")
        .copy("app", "app", mode=0o755)
        .set_envs({"COLOUR": "green", "LONGER": "$GREETING there"})
        .set_workdir("/work")
        .run_cmd('[ "$COLOUR" = green ] && pwd > /tmp/where')
        .set_user("other")
        .run_cmd("id -un > /tmp/other")
        .set_start_cmd("/srv/echo", "cat /opt/text")
    )


def build():
    lines = []
    info = Template.build(recipe("first"), alias=NAME, on_build_logs=lines.append)
    print("".join(f"{line}\n" for line in lines), file=sys.stderr)
    made["id"] = info.template_id
    said = [line.message for line in lines]
    assert any("id -un" in line for line in said), said
    assert Template.exists(NAME), "it is ready, and its name leads nowhere"


def files():
    sbx = made["sandbox"] = Sandbox.create(NAME, timeout=300)
    read = {path: sbx.files.read(path).strip() for path in ("/tmp/by-user", "/tmp/who", "/opt/text", "/srv/copied/one.txt", "/srv/app/main.sh", "/tmp/where", "/tmp/other", "/srv/old/kept")}
    assert read == {
        "/tmp/by-user": "built", "/tmp/who": "user", "/opt/text": "first", "/srv/copied/one.txt": "one",
        "/srv/app/main.sh": "echo main", "/tmp/where": "/work", "/tmp/other": "other", "/srv/old/kept": "of the base",
    }, read
    assert not sbx.files.exists("/srv/old/removed")
    out = sbx.commands.run("stat -c '%U %a' /srv/app/main.sh /srv/copied/one.txt; cat /srv/app/deep/link").stdout
    assert out.split("\n")[:3] == ["user 755", "user 644", "echo main"], out


def environment():
    out = made["sandbox"].commands.run("echo $COLOUR; echo $LONGER; pwd; id -un").stdout
    assert out.split("\n") == ["green", "hello there", "/work", "other", ""], out


def server():
    url = f"{os.environ['E2B_SANDBOX_URL']}/sandboxes/{made['sandbox'].sandbox_id}/8000/"
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert answer.status == 200, answer.status


def again():
    """A second build has the name; sandboxes of the first go on."""
    info = Template.build(recipe("second"), name=NAME + ":v2", tags=["default"])
    assert info.template_id == made["id"], info
    for name in (NAME, NAME + ":v2"):
        with Sandbox.create(name, timeout=60) as sbx:
            assert sbx.files.read("/opt/text").strip() == "second", name
    assert made["sandbox"].files.read("/opt/text").strip() == "first"


def failure():
    wrong = Template().from_image(IMAGE).run_cmd("echo fine").run_cmd("echo so it goes; exit 7")
    try:
        Template.build(wrong, alias=NAME)
        raise AssertionError("it was built")
    except BuildException as err:
        assert "7" in str(err) and "so it goes" in str(err), err
    with Sandbox.create(NAME, timeout=60) as sbx:
        assert sbx.files.read("/opt/text").strip() == "second"


def refusals():
    for image, said in (("127.0.0.1:1/none/none", "127.0.0.1"), (IMAGE.rsplit("/", 1)[0] + "/missing:1", "missing")):
        try:
            Template.build(Template().from_image(image).run_cmd("true"), alias="never")
            raise AssertionError(f"built from {image}")
        except BuildException as err:
            assert said in str(err), err
    assert not Template.exists("never")


def deletion():
    key = {"X-API-KEY": os.environ["E2B_API_KEY"]}
    request = urllib.request.Request(f"{os.environ['E2B_API_URL']}/templates/{made['id']}", method="DELETE", headers=key)
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.status == 204, answer.status
    deadline = time.monotonic() + 30
    while Template.exists(NAME):
        assert time.monotonic() < deadline, "the template stays"
        time.sleep(0.2)
    made["sandbox"].kill()


async def main():
    for case in (build, files, environment, server, again, failure, refusals, deletion):
        began, error = time.monotonic(), ""
        try:
            await asyncio.wait_for(asyncio.to_thread(case), 240)
        except BaseException as err:  # a case must not end the others
            error = f"{type(err).__name__}: {err}"
        print(json.dumps({"name": case.__name__, "ok": not error, "error": error, "ms": round((time.monotonic() - began) * 1000)}), flush=True)


leaving.run(main())
