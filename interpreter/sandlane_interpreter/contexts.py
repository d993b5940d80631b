"""Contexts: a kernel each, which starts when it is first needed, and which a new one follows
if it ends.

# States of a context

    no kernel --ensure--> starting --kernel answers--> ready --execute--> running --idle--> ready
    starting --kernel does not answer--> no kernel; the call that waited gets the error
    running --client left--> interrupted, again until the cell has begun --idle--> ready
                             --INTERRUPT_PATIENCE--> no kernel
    running --RESTORE_PATIENCE after the cell--> no kernel
    any --kernel ended by itself, or restart--> no kernel; the cell that ran ends with an error line
    any --remove--> removed, for good

One cell at a time runs, by `_turn`; what waits for its turn runs in the new kernel.

# Steps of a turn

Each step is a cell of the kernel. No step outlasts the call by more than the patience, since
other calls wait for the turn: a kernel may be busy although no cell runs, by a timer of
JavaScript or a task of Python.

    set      the variables of the sandbox, once a kernel, and those of the call
             --client left, or SET_PATIENCE--> interrupted, as a cell; then take back
    run      the code
             --client left--> interrupted; then take back
    restore  the variables as they were before the call
             --RESTORE_PATIENCE, also after the client left--> no kernel, as it has the call's variables
    any      --kernel ended--> the next steps end at once
"""

import asyncio
import contextlib
import logging
import uuid

from . import outputs
from .kernels import Kernel
from .languages import LANGUAGES

log = logging.getLogger(__name__)

INTERRUPT_PATIENCE = 3  # seconds for an interrupted cell to end before its kernel is replaced
INTERRUPT_AGAIN = 0.2  # seconds until a cell that has not begun is interrupted again
SET_PATIENCE = 60  # seconds for a kernel to set variables; long, since it may still be busy with a task of the user
RESTORE_PATIENCE = 20  # seconds for a kernel to take them back before it is replaced
BUSY = "The kernel stayed busy after the code had ended: its context was restarted"


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
            cell, restored = None, True
            try:
                if not kernel.variables_set:
                    values = await self._sandbox_variables(token)
                    if values:
                        cell = kernel.run_quietly(self._language.set_variables(values, False))
                        await asyncio.wait_for(cell.drain(), SET_PATIENCE)
                    kernel.variables_set = values is not None
                if variables:
                    cell = kernel.run_quietly(self._language.set_variables(variables, True))
                    await asyncio.wait_for(cell.drain(), SET_PATIENCE)
                cell = kernel.run(code)
                while (line := await cell.next()) is not None:
                    yield line
            except TimeoutError:
                raise TimeoutError(f"the kernel was busy for {SET_PATIENCE} seconds") from None
            finally:
                try:
                    if cell is not None and not cell.ended:
                        await self._interrupt(kernel, cell)
                finally:
                    if variables:  # also those of a client that left while they were set
                        restored = await self._restore(kernel)
            if not restored:
                yield outputs.encode(outputs.error("ContextRestarting", BUSY))

    async def _restore(self, kernel):
        """Takes back the variables of a call, and returns whether that was done; if not, the
        kernel was dropped."""
        cell = kernel.run_quietly(self._language.restore)
        done = asyncio.ensure_future(asyncio.wait_for(cell.drain(), RESTORE_PATIENCE))
        try:
            try:
                await asyncio.shield(done)
            except asyncio.CancelledError:  # the client left, which costs a kernel that is well nothing
                await asyncio.wait([done])
                done.exception()  # whatever it was, the cell says whether it ended
                raise
        except TimeoutError:
            log.warning("a %s kernel stayed busy after a cell: its context is restarted", self.language)
        finally:
            if not (restored := cell.ended):
                await self._drop(outputs.error("ContextRestarting", BUSY))
        return restored

    async def _interrupt(self, kernel, cell):
        """Interrupts a cell, and drops the kernel if that does not end it. A kernel that has
        not begun the cell ignores an interrupt, so it is sent again until one came after the
        beginning; no more, since code that cleans up should not be interrupted again."""
        try:
            async with asyncio.timeout(INTERRUPT_PATIENCE):
                begun = False
                while not begun and not cell.ended:
                    begun = cell.count > 0
                    await kernel.interrupt()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(cell.drain(), None if begun else INTERRUPT_AGAIN)
                        return
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
