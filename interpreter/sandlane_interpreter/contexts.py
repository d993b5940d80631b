"""Contexts: a kernel each, which starts when it is first needed, and which a new one follows
if it ends.

# States of a context

    no kernel --ensure--> starting --kernel answers--> ready --execute--> running --idle--> ready
    starting --kernel does not answer--> no kernel; the call that waited gets the error
    running --client left--> interrupted --idle--> ready
                                         --INTERRUPT_PATIENCE--> no kernel
    any --kernel ended by itself, or restart--> no kernel; the cell that ran ends with an error line
    any --remove--> removed, for good

One cell at a time runs, by `_turn`; what waits for its turn runs in the new kernel.
"""

import asyncio
import logging
import uuid

from . import outputs
from .kernels import Kernel
from .languages import LANGUAGES

log = logging.getLogger(__name__)

INTERRUPT_PATIENCE = 3  # seconds for an interrupted cell to end before its kernel is replaced


class ContextGone(Exception):
    """The context was removed."""


class Context:
    """One context. Its methods may be called from any task of one event loop."""

    def __init__(self, language, cwd, sandbox_variables):
        """`sandbox_variables` is a coroutine that returns, for a client's token, the
        variables of the sandbox, or None while they are unknown."""
        self.id = str(uuid.uuid4())
        self.language, self.cwd = language, cwd
        self._language = LANGUAGES[language]
        self._sandbox_variables = sandbox_variables
        self._turn = asyncio.Lock()
        self._starting = None  # task that starts the kernel; its result is the kernel
        self._removed = False

    def describe(self):
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    async def ensure(self):
        """Returns the kernel, started if there is none. It raises ContextGone, or what kept
        the kernel from starting."""
        if self._removed:
            raise ContextGone(self.id)
        if self._starting is None or self._starting.done() and (self._starting.cancelled() or self._starting.exception()):
            self._starting = asyncio.create_task(Kernel.start(self.language, self._language, self.cwd, self._died))
        return await asyncio.shield(self._starting)

    async def restart(self, why="The context was restarted"):
        """Replaces the kernel by a new one."""
        await self._drop(outputs.error("ContextRestarting", why))
        await self.ensure()

    async def remove(self):
        """Ends the context for good."""
        self._removed = True
        await self._drop(outputs.error("ContextRemoved", "The context was removed while the code ran"))

    async def execute(self, code, variables, token):
        """Runs a cell with variables of its own and yields its lines, encoded. Closing the
        generator interrupts the cell. It raises what `ensure` raises."""
        async with self._turn:
            kernel = await self.ensure()
            if not kernel.variables_set:
                values = await self._sandbox_variables(token)
                if values:
                    await kernel.run_quietly(self._language.set_variables(values, False))
                kernel.variables_set = values is not None
            cell = None
            try:
                if variables:
                    await kernel.run_quietly(self._language.set_variables(variables, True))
                cell = kernel.run(code)
                while (line := await cell.next()) is not None:
                    yield line
            finally:
                if cell is not None and not cell.ended:
                    await self._interrupt(kernel, cell)
                if variables:  # also those of a client that left while they were set
                    await kernel.run_quietly(self._language.restore)

    async def _interrupt(self, kernel, cell):
        await kernel.interrupt()
        try:
            await asyncio.wait_for(cell.drain(), INTERRUPT_PATIENCE)
        except TimeoutError:
            log.warning("a %s cell could not be interrupted: its context is restarted", self.language)
            await self._drop(outputs.error("ContextRestarting", "The code could not be interrupted: its context was restarted"))

    async def _drop(self, why):
        """Stops the kernel, if there is one."""
        starting, self._starting = self._starting, None
        if starting is None:
            return
        try:
            kernel = await starting
        except Exception:  # it never ran, and the call that started it has the error
            return
        await kernel.stop(why)

    def _died(self, kernel):
        log.warning("a %s kernel ended by itself", self.language)
        asyncio.create_task(self._replace())

    async def _replace(self):
        await self._drop(None)
        if not self._removed:
            try:
                await self.ensure()  # so that the next cell need not wait
            except Exception:
                log.exception("a %s kernel did not start", self.language)
