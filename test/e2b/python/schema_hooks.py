"""What Schemathesis has to know of this API to get further than to its 404s.

Every second request names a sandbox, template or alias that there is; of those that make a
sandbox it is every sixth, since each costs a pod, and it has no key of idempotency,
which another may have used before. Sandboxes that requests make are ended at
once. The sandbox is paused before a request that resumes it, and resumed before all
others but pauses. The template that a request deletes is a snapshot made just before.
Schemathesis loads it by SCHEMATHESIS_HOOKS.
"""

import itertools
import json
import os
import urllib.error
import urllib.request

import schemathesis

SANDBOX = os.environ["SANDBOX_ID"]
every, creates = itertools.count(), itertools.count()
paused = False


@schemathesis.hook
def before_call(context, case, kwargs):
    if isinstance(case.body, dict) and "templateID" in case.body and next(creates) % 6 == 0:
        case.body["templateID"] = "base"
        case.headers.pop("Idempotency-Key", None)
    if next(every) % 2:
        return
    if "sandboxID" in case.path_parameters and case.operation.method != "delete":
        case.path_parameters["sandboxID"] = SANDBOX
        if not case.path.endswith(("/pause", "/resume", "/connect")):
            resume()
        elif case.path.endswith("/resume"):
            ask("POST", f"/sandboxes/{SANDBOX}/pause", may_be=409)  # it is paused already
            note_paused(True)
        if case.path.endswith(("/timeout", "/connect", "/resume")):
            keep(case.body)
    if "templateID" in case.path_parameters and case.operation.method == "delete":
        resume()
        case.path_parameters["templateID"] = ask("POST", f"/sandboxes/{SANDBOX}/snapshots")["snapshotID"]
    elif "templateID" in case.path_parameters:
        case.path_parameters["templateID"] = "base"
    if "alias" in case.path_parameters:
        case.path_parameters["alias"] = "base"


def resume():
    if paused:
        ask("POST", f"/sandboxes/{SANDBOX}/connect", {"timeout": 3600})
        note_paused(False)


def keep(body):
    """Lets no timeout end the sandbox that the other requests are about. A paused one
    that is resumed without a timeout has a short one."""
    if not isinstance(body, dict):
        return
    timeout = body.get("timeout", 0)
    if type(timeout) is int and 0 <= timeout < 600:
        body["timeout"] = timeout + 600


@schemathesis.hook
def after_call(context, case, response):
    if case.path_parameters.get("sandboxID") == SANDBOX and response.status_code < 300:
        if case.path.endswith("/pause"):
            note_paused(True)
        elif case.path.endswith(("/resume", "/connect")):
            note_paused(False)
    elif response.status_code == 201 and "sandboxID" in response.json():
        ask("DELETE", f"/sandboxes/{response.json()['sandboxID']}", may_be=404)  # the answer to a create that was repeated


def note_paused(now):
    global paused
    paused = now


def ask(method, path, body=None, may_be=None):
    request = urllib.request.Request(
        os.environ["E2B_API_URL"] + path, method=method, data=None if body is None else json.dumps(body).encode(),
        headers={"X-API-KEY": os.environ["E2B_API_KEY"], "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
            return json.loads(text) if text else None
    except urllib.error.HTTPError as err:
        if err.code != may_be:
            raise
