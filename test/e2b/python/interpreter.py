"""Cases of E2B's code interpreter SDK for Python: the first program of its documentation,
and what a program with contexts, languages and charts does. Each case gives one line of
JSON, as those of cases.py do. The sandbox is shared, and ends after a pause.
"""

import asyncio
import json
import time

import leaving
from e2b import SandboxException, TimeoutException
from e2b_code_interpreter import Sandbox


def first_program(_):
    with Sandbox.create() as sandbox:
        sandbox.run_code("x = 1")
        execution = sandbox.run_code("x+=1; x")
        assert execution.text == "2", execution


def contexts(sbx):
    assert {"python", "javascript"} <= {c.language for c in sbx.list_code_contexts()}
    one = sbx.create_code_context(cwd="/home/user/one")
    assert sbx.run_code("import os; y = 1; os.getcwd()", context=one).text == "/home/user/one"
    assert sbx.run_code("y").error.name == "NameError"
    sbx.restart_code_context(one)
    assert sbx.run_code("y", context=one).error.name == "NameError"
    sbx.remove_code_context(one)
    assert one.id not in [c.id for c in sbx.list_code_contexts()]


def callbacks(sbx):
    out, errors, results, failed = [], [], [], []
    code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\ndisplay(3)\n1/0"
    sbx.run_code(code, on_stdout=out.append, on_stderr=errors.append, on_result=results.append, on_error=failed.append)
    assert [m.line for m in out] == ["out\n"] and [m.line for m in errors] == ["err\n"], (out, errors)
    assert [r.text for r in results] == ["3"] and [e.name for e in failed] == ["ZeroDivisionError"], (results, failed)


def charts(sbx):
    code = "import matplotlib.pyplot as plt\nplt.bar(['a', 'b'], [1, 2])\nplt.title('T')\nplt.show()"
    (shown,) = sbx.run_code(code).results
    assert shown.png and shown.chart.title == "T" and [e.value for e in shown.chart.elements] == [1, 2], shown.chart
    assert sbx.run_code("import pandas\npandas.DataFrame({'a': [1, 2]})").results[0].data == {"a": [1, 2]}


def languages(sbx):
    assert sbx.run_code("let a: number = 4; a", language="ts").text == "4"
    assert sbx.run_code("const b = 5; b", language="js").text == "5"
    assert sbx.run_code("echo hello", language="bash").logs.stdout == ["hello\n"]
    try:
        sbx.run_code("1", language="r")
        raise AssertionError("r has a kernel")
    except SandboxException as err:
        assert "image of your own" in str(err), err


def variables(sbx):
    for language, code in (("python", "import os; os.getenv('{}')"), ("javascript", "process.env.{}")):
        assert sbx.run_code(code.format("OF_SANDBOX"), language=language).text == "sandbox"
        assert sbx.run_code(code.format("OF_SANDBOX"), language=language, envs={"OF_SANDBOX": "call"}).text == "call"
        assert sbx.run_code(code.format("OF_SANDBOX"), language=language).text == "sandbox"


def timeouts(sbx):
    sbx.run_code("kept = 7")
    try:
        sbx.run_code("while True: pass", timeout=1)
        raise AssertionError("it ended")
    except TimeoutException:
        pass
    assert sbx.run_code("kept").text == "7"


def pause(sbx):
    sbx.run_code("kept = 8")
    sbx.pause()
    again = Sandbox.connect(sbx.sandbox_id)
    assert again.run_code("kept").text == "8"


async def main():
    began = time.monotonic()
    shared = Sandbox.create(timeout=600, envs={"OF_SANDBOX": "sandbox"})
    created = time.monotonic()
    shared.run_code("1")
    first = time.monotonic() - created
    print(f"created in {created - began:.3f} s, first code in {first:.3f} s", flush=True)

    for case in (contexts, callbacks, charts, languages, variables, timeouts, pause, first_program):
        began, error = time.monotonic(), ""
        try:
            await asyncio.wait_for(asyncio.to_thread(case, shared), 90)
        except BaseException as err:  # a case must not end the others
            error = f"{type(err).__name__}: {err}"
        print(json.dumps({"name": case.__name__, "ok": not error, "error": error, "ms": round((time.monotonic() - began) * 1000)}), flush=True)
    shared.kill()


leaving.run(main())
