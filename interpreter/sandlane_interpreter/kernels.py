"""One Jupyter kernel: its process, its channels, and the cells that run in it."""

import asyncio
import contextlib
import logging
import os
import uuid

import zmq
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.paths import jupyter_runtime_dir

from . import outputs

log = logging.getLogger(__name__)

START_TIMEOUT = 60  # seconds for a kernel to answer, on a loaded machine
MAX_UNREAD = 64 << 20  # bytes of output that a client has not read before its cell is interrupted
END_PATIENCE = 5  # seconds without output, after a kernel's reply, until a cell counts as ended
OOM_SCORE = "500"  # so that Linux, out of memory, ends a kernel before the server and sandboxd


class Kernel:
    """A kernel that answers. Make one with `start`; after `stop`, or once it died by itself,
    it runs nothing: cells get `why` as their last line."""

    @classmethod
    async def start(cls, name, language, cwd, died):
        """Starts a kernel of a language in a directory and waits until it answers. `died` is
        called with the kernel, once, if it ends by itself."""
        folder = jupyter_runtime_dir()
        os.makedirs(folder, mode=0o700, exist_ok=True)  # again, since users empty /tmp
        file = os.path.join(folder, f"{uuid.uuid4().hex}.json")
        manager = AsyncKernelManager(kernel_name=name, transport=language.transport, connection_file=file)
        manager._kernel_spec = language.spec(name)
        manager.context.setsockopt(zmq.RCVHWM, 0)  # else ZeroMQ drops output of which 1000 messages wait
        await manager.start_kernel(cwd=cwd)
        with contextlib.suppress(OSError):  # it may have ended already
            with open(f"/proc/{manager.provisioner.pid}/oom_score_adj", "w") as f:
                f.write(OOM_SCORE)
        client = manager.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=START_TIMEOUT)
        except BaseException:
            client.stop_channels()
            await manager.shutdown_kernel(now=True)
            raise
        return cls(manager, client, language, died)

    def __init__(self, manager, client, language, died):
        self._manager, self._client, self._language = manager, client, language
        self._cells = {}  # ID of a request -> Cell
        self._fences = {}  # ID of a fence -> that of the request whose cell it ends
        self._ended = None  # the last line of cells, once the kernel ended
        self._tasks = [asyncio.create_task(work) for work in (self._read(), self._read_replies(), self._watch(died))]
        self.variables_set = False  # whether the sandbox's variables are set in it

    def run(self, code):
        """Begins to run code and returns its cell."""
        return self._begin(code, Cell(self))

    def run_quietly(self, code):
        """Begins to run code of ours, which counts as no execution, and returns its cell,
        which has no lines."""
        return self._begin(code, Cell(self, quiet=True))

    def _begin(self, code, cell):
        if self._ended is not None:
            cell.end(self._ended)
        else:
            self._cells[self._send(code, silent=cell.quiet)] = cell
        return cell

    def _send(self, code, silent):
        return self._client.execute(code, silent=silent, store_history=not silent, allow_stdin=False, stop_on_error=True)

    async def interrupt(self):
        """Interrupts the cell that runs."""
        with contextlib.suppress(Exception):  # the kernel may just have ended
            await self._manager.interrupt_kernel()

    async def stop(self, why):
        """Ends the kernel. `why` is the last line of cells that run."""
        self._end(why)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._client.stop_channels()
        await self._manager.shutdown_kernel(now=True)

    def _end(self, why):
        if self._ended is None:
            self._ended = why
        for cell in self._cells.values():
            cell.end(self._ended)
        self._cells.clear()
        self._fences.clear()

    async def _read(self):
        """Hands the kernel's output to the cells that it belongs to. A message that cannot be
        read is dropped: the user's code may send any, and later cells need this task."""
        while True:
            try:
                self._take(await self._client.get_iopub_msg())
            except zmq.ZMQError:
                raise  # no message, but the end of the channel
            except Exception as e:  # its text may have the user's data
                log.warning("a message of a kernel was dropped: %s", type(e).__name__)

    def _take(self, message):
        id, kind = message["parent_header"].get("msg_id"), message["header"]["msg_type"]
        if (cell := self._cells.get(id)) is not None:
            if kind == "status" and message["content"]["execution_state"] == "idle":
                self._idle(id)
            elif (line := outputs.line(message)) is not None:
                cell.put(line)
        elif (request := self._fences.get(id)) is not None:
            if kind in ("comm_msg", "error"):
                del self._fences[id]
                if (cell := self._cells.pop(request, None)) is not None:
                    cell.end()

    async def _read_replies(self):
        """Ends cells whose end was lost on the way: ZeroMQ may drop output, and replies never."""
        loop = asyncio.get_running_loop()
        while True:
            reply = await self._client.get_shell_msg()
            id = reply["parent_header"].get("msg_id")
            if (cell := self._cells.get(id)) is not None:
                loop.call_later(END_PATIENCE, self._end_replied, id, cell.count)

    def _end_replied(self, id, count):
        cell = self._cells.get(id)
        if cell is None:
            return
        if cell.count != count:  # its output still comes
            asyncio.get_running_loop().call_later(END_PATIENCE, self._end_replied, id, cell.count)
            return
        log.warning("a kernel did not say that its cell ended")
        self._cells.pop(id).end()

    def _idle(self, id):
        """Ends the cell of a request; if its language has a fence, when that has come."""
        if self._language.fence and not self._cells[id].ended:
            self._fences[self._send(self._language.fence, silent=True)] = id
        else:
            self._cells.pop(id).end()

    async def _watch(self, died):
        await self._manager.provisioner.wait()
        self._end(outputs.error("ContextRestarting", "The kernel ended by itself (killed, or out of memory): the context is restarted"))
        died(self)


class Cell:
    """The lines of one execution that were not read yet, as JSON. One task reads it."""

    def __init__(self, kernel, quiet=False):
        self.ended = False
        self.quiet = quiet  # whether it is code that sets variables
        self.count = 0  # of lines that came
        self._kernel = kernel
        self._lines = asyncio.Queue()
        self._unread = 0
        self._overrun = False

    def put(self, line):
        """Adds a line. With too many unread the cell is interrupted, and further lines are
        dropped. Of a quiet cell's lines the names of errors alone are logged, since its code
        holds values of variables."""
        self.count += 1
        if self.quiet:
            if line["type"] == "error":
                log.warning("variables were not set: %s", line["name"])
            return
        if self.ended or self._overrun:
            return
        data = outputs.encode(line)
        if self._unread + len(data) > MAX_UNREAD:
            self._overrun = True
            data = outputs.encode(outputs.error("OutputTooLarge", f"More than {MAX_UNREAD >> 20} MiB of output were not read"))
            asyncio.create_task(self._kernel.interrupt())
        self._unread += len(data)
        self._lines.put_nowait(data)

    def end(self, last=None):
        """Ends the cell, with a last line if one is given."""
        if self.ended:
            return
        self.ended = True
        if last is not None:
            self._lines.put_nowait(outputs.encode(last))
        self._lines.put_nowait(None)

    async def next(self):
        """Returns the next line, and None at the end."""
        line = await self._lines.get()
        if line is not None:
            self._unread -= len(line)
        return line

    async def drain(self):
        """Reads what is left."""
        while await self.next() is not None:
            pass
