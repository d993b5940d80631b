"""What Schemathesis has to know of this API to get further than to its 404s.

Every second request names a sandbox or alias that there is; of those that make a
sandbox it is every sixth, since each costs a pod, and it has no key of idempotency,
which another may have used before. Sandboxes that requests make are ended at
once. Schemathesis loads it by SCHEMATHESIS_HOOKS.
"""

import itertools
import os
import urllib.error
import urllib.request

import schemathesis

SANDBOX = os.environ["SANDBOX_ID"]
every, creates = itertools.count(), itertools.count()


@schemathesis.hook
def before_call(context, case, kwargs):
    if isinstance(case.body, dict) and "templateID" in case.body and next(creates) % 6 == 0:
        case.body["templateID"] = "base"
        case.headers.pop("Idempotency-Key", None)
    if next(every) % 2:
        return
    if "sandboxID" in case.path_parameters and case.operation.method != "delete":
        case.path_parameters["sandboxID"] = SANDBOX
        if case.path.endswith("/timeout"):
            keep(case.body)
    if "alias" in case.path_parameters:
        case.path_parameters["alias"] = "base"


def keep(body):
    """Lets no timeout end the sandbox that the other requests are about."""
    if isinstance(body, dict) and type(body.get("timeout")) is int and 0 <= body["timeout"] < 600:
        body["timeout"] += 600


@schemathesis.hook
def after_call(context, case, response):
    if response.status_code != 201:
        return
    request = urllib.request.Request(
        f"{os.environ['E2B_API_URL']}/sandboxes/{response.json()['sandboxID']}",
        method="DELETE", headers={"X-API-KEY": os.environ["E2B_API_KEY"]})
    try:
        urllib.request.urlopen(request, timeout=30).close()
    except urllib.error.HTTPError as err:
        if err.code != 404:  # the answer to a create that was repeated
            raise
