"""The interpreter from outside: its HTTP calls, with real kernels."""

import asyncio
import base64
import dataclasses
import json
import os
import shutil
import signal
import tempfile
import unittest
import unittest.mock

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from sandlane_interpreter import contexts, kernels, server

HOSTILE = "'\"; raise SystemExit\n$(exit 9)`exit 9`\\\u2028{}\U0001f600 \t\x0c\x85"


class ServerTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.home = tempfile.TemporaryDirectory()
        os.environ["JUPYTER_RUNTIME_DIR"] = self.home.name
        self.token = None

        async def envs(request):
            self.token = request.headers.get("X-Access-Token")
            return web.json_response({"OF_SANDBOX": "sandbox", "QUOTED": HOSTILE})

        app = web.Application()
        app.add_routes([web.get("/envs", envs)])
        self.agent = TestServer(app)
        await self.agent.start_server()
        self.client = TestClient(TestServer(server.Interpreter(self.home.name, f"http://127.0.0.1:{self.agent.port}").app()))
        await self.client.start_server()

    async def asyncTearDown(self):
        await self.client.close()
        await self.agent.close()
        self.home.cleanup()

    async def run_code(self, code, **more):
        """Returns the lines of an execution, without keepalives and its number."""
        async with self.client.post("/execute", json={"code": code, **more}) as answer:
            self.assertEqual(answer.status, 200)
            text = await answer.text()
        lines = [json.loads(line) for line in text.splitlines()]
        return [line for line in lines if line["type"] not in ("keepalive", "number_of_executions")]

    async def text(self, code, **more):
        """Returns the value of the last expression, or of what was printed."""
        lines = await self.run_code(code, **more)
        self.assertEqual(lines[-1], {"type": "end_of_execution"}, lines)
        return "".join(line["text"] for line in lines[:-1])

    async def contexts(self):
        return await (await self.client.get("/contexts")).json()

    async def test_python(self):
        self.assertEqual(await self.text("x = 20\nx + 1"), "21")
        self.assertEqual(await self.text("x"), "20")
        lines = await self.run_code("1/0")
        self.assertEqual((lines[0]["type"], lines[0]["name"]), ("error", "ZeroDivisionError"))
        # Two defaults are listed, and only Python's has a kernel.
        self.assertEqual(sorted(c["language"] for c in await self.contexts()), ["javascript", "python"])

    async def test_data_of_a_frame(self):
        lines = await self.run_code(
            "import datetime, numpy as np, pandas as pd\n"
            "loop = []; loop.append(loop)\n"
            "pd.DataFrame({'emb': [np.array([.1, .2])], 'series': [pd.Series([1, 2])], 'list': [[np.int64(1), float('nan'), ['a']]],\n"
            "    'dict': [{1: np.float64(.5)}], 'day': [datetime.date(2026, 1, 2)], 'nat': [pd.NaT], 'nan': [float('nan')],\n"
            "    'bytes': [b'x'], 'number': [1], 'loop': [loop]})"
        )
        self.assertEqual([line["type"] for line in lines], ["result", "end_of_execution"], lines)
        self.assertEqual(
            lines[0]["data"],
            {
                "emb": [[0.1, 0.2]],
                "series": [[1, 2]],
                "list": [[1, None, ["a"]]],
                "dict": [{"1": 0.5}],
                "day": ["2026-01-02"],
                "nat": [None],
                "nan": [None],
                "bytes": ["b'x'"],
                "number": [1],
                "loop": ["[[...]]"],
            },
        )
        lines = await self.run_code("class Unreadable(pd.DataFrame):\n    def to_dict(self, **options): raise ValueError\nUnreadable({'a': [1]})")
        self.assertEqual([line["type"] for line in lines], ["result", "end_of_execution"], lines)

    async def test_variables(self):
        read = {
            "python": "import os; print(os.environ.get('{}', 'none'))",
            "javascript": "console.log(process.env.{} ?? 'none')",
            "bash": "echo $(printf %s \"${{{}-none}}\" | base64 --wrap=0)",
        }

        async def value(name, **more):
            text = (await self.text(code.format(name), language=language, **more)).removesuffix("\n")
            return base64.b64decode(text).decode() if language == "bash" else text

        for language, code in read.items():
            with self.subTest(language):
                self.assertEqual(await value("OF_SANDBOX"), "sandbox")
                self.assertEqual(await value("QUOTED"), HOSTILE)
                for name in ("MINE", "OF_SANDBOX"):
                    self.assertEqual(await value(name, env_vars={name: HOSTILE}), HOSTILE)
                self.assertEqual(await value("MINE"), "none")
                self.assertEqual(await value("OF_SANDBOX"), "sandbox")

    async def test_variables_of_bash_with_any_character(self):
        # A character that readline takes for a command would act on the files of the folder.
        for files in (1, 150):
            folder = os.path.join(self.home.name, str(files))
            os.mkdir(folder)
            for i in range(files):
                open(os.path.join(folder, f"file{i}"), "w").close()
            made = await (await self.client.post("/contexts", json={"language": "bash", "cwd": folder})).json()
            for value in ("\t\ta", "".join(map(chr, range(1, 0x180))), "\u2029!!" + "x" * 10_000):
                with self.subTest((files, value[:10])):
                    text = await self.text('echo $(printf %s "$A" | base64 --wrap=0)', context_id=made["id"], env_vars={"A": value})
                    self.assertEqual(base64.b64decode(text).decode(), value)

    async def test_bash_with_tabs(self):
        code = "cat <<'END'\na\tb\n\t\tc\nEND\nif true; then\n\techo d\nfi"
        self.assertEqual(await self.text(code, language="bash"), "a\tb\n\t\tc\nd\n")

    async def test_hostile_names(self):
        for name in ("A; exit 9", "A=B", "", "1A", "A\nexit"):
            async with self.client.post("/execute", json={"code": "1", "language": "bash", "env_vars": {name: "x"}}) as answer:
                self.assertEqual(answer.status, 400, name)

    async def test_last_expression_of_javascript(self):
        for i in range(40):
            self.assertEqual(await self.text(f"let a{i}: number = {i}; a{i}", language="ts"), str(i))

    async def test_contexts(self):
        made = await (await self.client.post("/contexts", json={"cwd": os.path.join(self.home.name, "new", "folder")})).json()
        self.assertEqual((await self.contexts())[-1], made)
        await self.run_code("x = 1")
        lines = await self.run_code("x", context_id=made["id"])
        self.assertEqual(lines[0]["name"], "NameError")
        self.assertEqual(await self.text("import os; os.getcwd()", context_id=made["id"]), made["cwd"])
        await self.run_code("y = 1", context_id=made["id"])
        self.assertEqual((await self.client.post(f"/contexts/{made['id']}/restart")).status, 200)
        self.assertEqual((await self.run_code("y", context_id=made["id"]))[0]["name"], "NameError")
        self.assertEqual((await self.client.delete(f"/contexts/{made['id']}")).status, 200)
        self.assertEqual((await self.client.post("/execute", json={"code": "1", "context_id": made["id"]})).status, 404)
        self.assertEqual(await self.text("x"), "1")

    async def test_refusals(self):
        for path, body, said in (
            ("/execute", b"{", "JSON"),
            ("/execute", b"[]", "object"),
            ("/execute", b'{"code": 1}', "string"),
            ("/execute", b'{"code": "1", "env_vars": {"A": 1}}', "env_vars"),
            ("/execute", b'{"code": "1", "env_vars": {"A": "\\u0000"}}', "no environment"),
            ("/execute", b'{"code": "1", "env_vars": {"A": "\\ud83d"}}', "no environment"),
            ("/execute", b'{"code": "1", "context_id": "a", "language": "python"}', "Only one"),
            ("/execute", b'{"code": "1", "language": "r"}', "image of your own"),
            ("/execute", b'{"code": "1", "language": "cobol"}', "No kernel"),
            ("/contexts", b'{"cwd": "/etc/passwd"}', "working directory"),
        ):
            async with self.client.post(path, data=body) as answer:
                self.assertEqual(answer.status, 400, body)
                self.assertIn(said, await answer.text())

    async def test_killed_kernel(self):
        lines = await self.run_code(f"import os; os.kill(os.getpid(), {signal.SIGKILL.value})")
        self.assertEqual(lines[0]["name"], "ContextRestarting")
        self.assertEqual(await self.text("1"), "1")

    async def test_emptied_tmp(self):
        runtime = os.environ["JUPYTER_RUNTIME_DIR"] = os.path.join(self.home.name, "kernels")
        await self.run_code(f"import os; os.kill(os.getpid(), {signal.SIGKILL.value})")
        self.assertEqual(await self.text("1"), "1")
        self.assertEqual(os.stat(runtime).st_mode & 0o777, 0o700)
        shutil.rmtree(runtime)
        self.assertEqual((await self.client.post("/contexts", json={})).status, 200)

    async def test_client_that_leaves(self):
        for language, code in (("python", "while True: pass"), ("javascript", "while (true) {}"), ("bash", "sleep 1000")):
            with self.subTest(language):
                await self.run_code("1", language=language)
                async with self.client.post("/execute", json={"code": code, "language": language}) as answer:
                    await answer.content.readline()  # its number: it runs
                self.assertEqual(await self.text("echo 1" if language == "bash" else "1", language=language), "1\n" if language == "bash" else "1")

    async def test_interrupt_before_the_cell_begins(self):
        for language, code in (("python", "while True: pass"), ("javascript", "while (true) {}"), ("bash", "sleep 1000")):
            with self.subTest(language):
                context = contexts.Context(language, self.home.name, None)
                self.addAsyncCleanup(context.remove)
                kernel = await context.ensure()
                for _ in range(3):
                    await context._interrupt(kernel, kernel.run(code))
                    self.assertIs(await context.ensure(), kernel)

    async def test_client_that_leaves_while_variables_are_taken_back(self):
        taken_back, cell, kernel = asyncio.Event(), unittest.mock.Mock(ended=False), unittest.mock.AsyncMock()

        async def drain():
            await taken_back.wait()
            cell.ended = True

        cell.drain = drain
        kernel.run_quietly = lambda code: cell
        context = contexts.Context("python", self.home.name, None)
        context._starting = asyncio.get_running_loop().create_future()
        context._starting.set_result(kernel)
        leaving = asyncio.create_task(context._restore(kernel))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.sleep(0)
        taken_back.set()
        with self.assertRaises(asyncio.CancelledError):
            await leaving
        kernel.stop.assert_not_called()

    async def test_kernel_that_is_busy_without_a_cell(self):
        flag, variables, javascript = os.path.join(self.home.name, "flag"), {"A": "b"}, contexts.LANGUAGES["javascript"]
        for module, name in ((contexts, "INTERRUPT_PATIENCE"), (kernels, "END_PATIENCE")):
            patch = unittest.mock.patch.object(module, name, 1)
            patch.start()
            self.addCleanup(patch.stop)

        async def busy():
            code = f"setInterval(() => {{ try {{ Deno.removeSync({json.dumps(flag)}) }} catch {{ return }} while (true) {{}} }}, 10); 1"
            self.assertEqual(await self.text(code, language="js"), "1")
            open(flag, "w").close()
            while os.path.exists(flag):
                await asyncio.sleep(0.01)

        async def leaves(**more):
            with self.assertRaises(TimeoutError):
                await asyncio.wait_for(self.run_code("2", env_vars=variables, **more), 1)
            self.assertEqual(await asyncio.wait_for(self.text("process.env.A ?? 'none'", **more), 30), "none")

        with self.subTest("a client that leaves while variables are set"):
            await busy()
            await leaves(language="js")
        with self.subTest("a client that stays meanwhile"), unittest.mock.patch.object(contexts, "SET_PATIENCE", 1):
            await busy()
            lines = await self.run_code("2", language="js", env_vars=variables)
            self.assertIn("busy", lines[0].get("value", ""), lines)
        never = dataclasses.replace(javascript, restore="while (true) {}")
        with unittest.mock.patch.dict(contexts.LANGUAGES, {"javascript": never}):
            made = await (await self.client.post("/contexts", json={"language": "js"})).json()
        with self.subTest("a client that stays while they are taken back"), unittest.mock.patch.object(contexts, "RESTORE_PATIENCE", 1):
            lines = await self.run_code("2", context_id=made["id"], env_vars=variables)
            self.assertEqual([line.get("name") for line in lines], [None, "ContextRestarting", None], lines)
        with self.subTest("a client that leaves meanwhile"), unittest.mock.patch.object(contexts, "RESTORE_PATIENCE", 2):
            await leaves(context_id=made["id"])

    async def test_messages_that_no_kernel_should_send(self):
        lines = await self.run_code("display({'text/plain': 5}, raw=True)")
        self.assertEqual([line.get("text") for line in lines], ["5", None])
        kernel = "k = get_ipython().kernel\n"
        for code in (
            "k.send_response(k.iopub_socket, 'stream', {})",
            "k.send_response(k.iopub_socket, 'display_data', {'data': 5})",
            "k.session.send(k.iopub_socket, 'stream', {}, parent={'msg_id': []})",
            "k.iopub_socket.send_multipart([b'topic', b'<IDS|MSG>', b'not signed', b'', b'', b'', b''])",
        ):
            with self.subTest(code):
                await self.run_code(kernel + code)
                self.assertEqual(await self.text("print(1)"), "1\n")

    async def test_keepalive(self):
        with unittest.mock.patch.object(server, "KEEPALIVE", 0.05):
            os.mkfifo(os.path.join(self.home.name, "fifo"))
            async with self.client.post("/execute", json={"code": "open('fifo').read()"}) as answer:
                while json.loads(await answer.content.readline())["type"] != "keepalive":
                    pass
                await asyncio.to_thread(lambda: open(os.path.join(self.home.name, "fifo"), "w").close())
                self.assertIn(b"end_of_execution", await answer.content.read())

    async def test_much_output(self):
        self.assertEqual(len(await self.text("print('x' * 10_000_000)")), 10_000_001)
        # More messages than ZeroMQ keeps by itself, at once.
        lines = await self.run_code("from IPython.display import display\nfor i in range(5000): display(i)")
        self.assertEqual(len(lines), 5001)

    async def test_unread_output_is_bounded(self):
        with unittest.mock.patch.object(kernels, "MAX_UNREAD", 1000):
            lines = await self.run_code("for i in range(100): print('x' * 100_000, flush=True)\nimport time\ntime.sleep(1000)")
        self.assertIn("OutputTooLarge", [line.get("name") for line in lines])


if __name__ == "__main__":
    unittest.main()
