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
from e2b import BuildException, Sandbox, SandboxQuery, Template, TemplateException

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


def tags():
    """A tag moves back to the first build, and one that is removed names nothing."""
    first = Template.build(recipe("third"), name=NAME + ":v3")
    assert first.template_id == made["id"], first
    info = Template.assign_tags(NAME + ":v3", tags=["stable", "v2"])
    assert info.build_id == first.build_id and sorted(info.tags) == ["stable", "v2"], info
    for name, text in ((NAME, "second"), (NAME + ":stable", "third"), (NAME + ":v2", "third")):
        with Sandbox.create(name, timeout=60) as sbx:
            assert sbx.files.read("/opt/text").strip() == text, name
    held = {tag.tag: tag.build_id for tag in Template.get_tags(NAME)}
    assert set(held) == {"default", "v2", "v3", "stable"} and held["v2"] == held["stable"] == first.build_id != held["default"], held
    Template.remove_tags(NAME, tags=["stable", "v2"])
    assert {tag.tag for tag in Template.get_tags(made["id"])} == {"default", "v3"}
    for name in (NAME + ":stable", NAME + ":v2"):
        try:
            Sandbox.create(name, timeout=60).kill()
        except Exception as err:
            assert "does not exist" in str(err), err
        else:
            raise AssertionError(f"{name} still names a build")
    try:
        Template.assign_tags("none-of-ours:default", tags=["x"])
    except TemplateException as err:
        assert "404" in str(err), err
    else:
        raise AssertionError("a template that there is not has a tag")


def lists():
    one = rest("GET", f"/templates/{NAME}")
    assert one["templateID"] == made["id"] and one["names"] == [NAME] and len(one["builds"]) == 3 and one["builds"][0]["status"] == "ready", one
    for path in ("/templates", "/v2/templates?limit=100"):
        ours = [t for t in rest("GET", path) if t["templateID"] == made["id"]]
        assert len(ours) == 1 and ours[0]["aliases"] == [NAME] and ours[0]["buildID"] in [b["buildID"] for b in one["builds"]], ours
    assert rest("PATCH", f"/v2/templates/{NAME}", {"public": False}) == {"names": [NAME]}
    logs = rest("GET", f"/templates/{NAME}/builds/{one['buildID']}/logs?direction=backward")["logs"]
    assert logs and logs[0]["step"] == "finalize", logs
    listed = Sandbox.list(query=SandboxQuery(template=NAME)).next_items()
    assert made["sandbox"].sandbox_id in [s.sandbox_id for s in listed], "the sandbox of an older build is not of the template"


def rest(method, path, body=None):
    request = urllib.request.Request(
        os.environ["E2B_API_URL"] + path, method=method, data=None if body is None else json.dumps(body).encode(),
        headers={"X-API-KEY": os.environ["E2B_API_KEY"], "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


def from_template():
    """It begins with the files, user, folder, variables and server of the template."""
    template = Template().from_template(NAME + ":v3").run_cmd("id -un > /tmp/again; pwd >> /tmp/again; echo $COLOUR >> /tmp/again")
    Template.build(template, name="upon")
    with Sandbox.create("upon", timeout=60) as sbx:
        assert sbx.files.read("/opt/text").strip() == "third" and sbx.files.read("/tmp/again") == "other\n/work\ngreen\n", sbx.files.read("/tmp/again")
        with urllib.request.urlopen(f"{os.environ['E2B_SANDBOX_URL']}/sandboxes/{sbx.sandbox_id}/8000/", timeout=20) as answer:
            assert answer.status == 200, answer.status
    try:
        Template.build(Template().from_template("none-of-ours"), name="never")
    except BuildException as err:
        assert "none-of-ours" in str(err), err
    else:
        raise AssertionError("built from a template that there is not")


def cached():
    """Steps that an earlier build has done are not done again, unless the program says so."""

    def timed(last, **options):
        began = time.monotonic()
        template = Template().from_image(IMAGE).run_cmd("cat /proc/sys/kernel/random/uuid > /tmp/once; sleep 2").run_cmd(last)
        Template.build(template, alias="cached", **options)
        took = time.monotonic() - began
        with Sandbox.create("cached", timeout=60) as sbx:
            return sbx.files.read("/tmp/once"), took

    (first, cold), (same, warm), (part, half), (anew, _) = timed("true"), timed("true"), timed("exit 0"), timed("true", skip_cache=True)
    print(f"TIMES a build took {cold:.1f} s, the same again {warm:.1f} s, with another last step {half:.1f} s", file=sys.stderr)
    assert first == same == part != anew, (first, same, part, anew)


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
    for case in (build, files, environment, server, again, tags, lists, from_template, cached, failure, refusals, deletion):
        began, error = time.monotonic(), ""
        try:
            await asyncio.wait_for(asyncio.to_thread(case), 240)
        except BaseException as err:  # a case must not end the others
            error = f"{type(err).__name__}: {err}"
        print(json.dumps({"name": case.__name__, "ok": not error, "error": error, "ms": round((time.monotonic() - began) * 1000)}), flush=True)


leaving.run(main())
