"""The HTTP calls of the interpreter."""

import asyncio
import json
import logging
import os
import re

import aiohttp
from aiohttp import web

from . import outputs
from .contexts import Context, ContextGone
from .languages import UnknownLanguage, normalize

log = logging.getLogger(__name__)

KEEPALIVE = 5  # seconds without output after which a line keeps the connection busy
NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")  # a variable that all languages can set
VALUE = re.compile("[^\0\ud800-\udfff]*")  # a value that an environment can have: UTF-8 without NUL
MAX_REQUEST = 32 << 20  # bytes of one call's JSON
SANDBOXD_TIMEOUT = aiohttp.ClientTimeout(total=5)
KEEPALIVE_LINE = outputs.encode({"type": "keepalive"})
END = outputs.encode({"type": "end_of_execution"})
UNEXPECTED_END = outputs.encode({"type": "unexpected_end_of_execution"})
SANDBOXD = "http://127.0.0.1:49983"


class Interpreter:
    """The contexts of one sandbox. `cwd` is the working directory of a context that names
    none; `sandboxd` is the base URL of the sandbox's agent, which tells the sandbox's
    variables."""

    def __init__(self, cwd, sandboxd=SANDBOXD):
        self._cwd = cwd
        self._sandboxd = sandboxd
        self._contexts = {}
        self._defaults = {}  # language -> its default context, for calls that name none
        self._variables = None
        self._removals = set()  # tasks that remove contexts whose clients left

    def app(self):
        """Returns the application. Its start starts the default Python kernel, so that a
        sandbox is ready when its first code runs at once. The default context of JavaScript
        is listed beside it, as E2B does; kernels but Python's start at their first use."""
        app = web.Application(client_max_size=MAX_REQUEST)
        app.add_routes(
            [
                web.get("/health", self._health),
                web.post("/execute", self._execute),
                web.get("/contexts", self._list),
                web.post("/contexts", self._create),
                web.delete("/contexts/{id}", self._remove),
                web.post("/contexts/{id}/restart", self._restart),
            ]
        )
        app.on_startup.append(self._start)
        app.on_cleanup.append(self._stop)
        return app

    async def _start(self, app):
        self._default("javascript")
        await self._default("python").ensure()
        self._session = aiohttp.ClientSession()

    async def _stop(self, app):
        await asyncio.gather(*(c.remove() for c in self._contexts.values()), return_exceptions=True)
        await self._session.close()

    async def _health(self, request):
        return web.json_response("OK")

    async def _execute(self, request):
        body = await _body(request)
        code, context_id, language = body.get("code"), body.get("context_id"), body.get("language")
        variables = body.get("env_vars") or {}
        if not isinstance(code, str):
            raise web.HTTPBadRequest(text="code must be a string")
        if not isinstance(variables, dict) or not all(isinstance(v, str) for v in variables.values()):
            raise web.HTTPBadRequest(text="env_vars must map names to strings")
        if not all(NAME.fullmatch(name) for name in variables) or not all(VALUE.fullmatch(v) for v in variables.values()):
            raise web.HTTPBadRequest(text="env_vars has a name or value that no environment can have")
        if context_id and language:
            raise web.HTTPBadRequest(text="Only one of context_id or language can be provided")
        context = self._find(context_id) if context_id else self._default(_language(language))
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-store"})
        lines = context.execute(code, variables, request.headers.get("X-Access-Token"))
        try:
            await response.prepare(request)
            async for line in _with_keepalives(lines):
                await response.write(line)
        except ContextGone:
            await response.write(outputs.encode(outputs.error("ContextRemoved", "The context was removed before the code ran")))
            await response.write(UNEXPECTED_END)
        except ConnectionError:
            raise
        except Exception as e:
            log.exception("code did not run")
            await response.write(outputs.encode(outputs.error("UnexpectedEndOfExecution", f"The code did not run: {e}")))
            await response.write(UNEXPECTED_END)
        else:
            await response.write(END)
        finally:
            await lines.aclose()
        return response

    async def _list(self, request):
        return web.json_response([c.describe() for c in self._contexts.values()])

    async def _create(self, request):
        body = await _body(request)
        cwd = body.get("cwd") or self._cwd
        if not isinstance(cwd, str):
            raise web.HTTPBadRequest(text="cwd must be a string")
        language = _language(body.get("language"))
        context = Context(language, cwd, self._sandbox_variables)
        try:
            os.makedirs(cwd, exist_ok=True)
            await context.ensure()
        except asyncio.CancelledError:  # the client left: nothing lists the context
            removal = asyncio.ensure_future(context.remove())
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)
            raise
        except OSError as e:
            raise web.HTTPBadRequest(text=f"The context's working directory cannot be used: {e}") from e
        except Exception as e:
            raise web.HTTPInternalServerError(text=f"The kernel for {language} in {cwd} did not start: {e}") from e
        self._contexts[context.id] = context
        return web.json_response(context.describe())

    async def _remove(self, request):
        context = self._find(request.match_info["id"])
        del self._contexts[context.id]
        if self._defaults.get(context.language) is context:
            del self._defaults[context.language]
        await asyncio.shield(context.remove())
        return web.json_response(None)

    async def _restart(self, request):
        await asyncio.shield(self._find(request.match_info["id"]).restart())
        return web.json_response(None)

    def _find(self, id):
        context = self._contexts.get(id)
        if context is None:
            raise web.HTTPNotFound(text=f"Context {id} not found")
        return context

    def _default(self, language):
        """Returns the default context of a language."""
        context = self._defaults.get(language)
        if context is None:
            context = self._defaults[language] = Context(language, self._cwd, self._sandbox_variables)
            self._contexts[context.id] = context
        return context

    async def _sandbox_variables(self, token):
        """Returns the variables that the sandbox was created with, or None if they cannot be
        read. They are read at the first execution, since kernels are older than the
        sandbox."""
        if self._variables is not None:
            return self._variables
        headers = {"X-Access-Token": token} if token else {}
        try:
            async with self._session.get(f"{self._sandboxd}/envs", headers=headers, timeout=SANDBOXD_TIMEOUT) as answer:
                answer.raise_for_status()
                self._variables = await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as e:
            log.warning("the sandbox's variables could not be read: %s", type(e).__name__)
        return self._variables


async def _body(request):
    try:
        body = json.loads(await request.read() or b"{}")
    except ValueError:
        raise web.HTTPBadRequest(text="the body is not JSON") from None
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(text="the body must be a JSON object")
    return body


def _language(name):
    if name is not None and not isinstance(name, str):
        raise web.HTTPBadRequest(text="language must be a string")
    try:
        return normalize(name)
    except UnknownLanguage as e:
        raise web.HTTPBadRequest(text=str(e)) from None


async def _with_keepalives(lines):
    """Yields the lines, and a keepalive whenever none comes for a while."""
    coming = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(lines, None))
            done, _ = await asyncio.wait([coming], timeout=KEEPALIVE)
            if not done:
                yield KEEPALIVE_LINE
                continue
            line, coming = coming.result(), None
            if line is None:
                return
            yield line
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
