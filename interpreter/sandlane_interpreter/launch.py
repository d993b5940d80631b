"""Kernels of ipykernel: `python -m sandlane_interpreter.launch python|bash -f FILE`. Python's
has `startup` run before its first cell."""

import sys

import zmq
from ipykernel.kernelapp import IPKernelApp


class App(IPKernelApp):
    """IPKernelApp that drops no output of which many messages wait, as ZeroMQ does."""

    def init_iopub(self, context):
        context.setsockopt(zmq.SNDHWM, 0)
        super().init_iopub(context)


def main():
    options = {"hist_file": ":memory:"}
    if sys.argv.pop(1) == "bash":
        from bash_kernel.kernel import BashKernel

        class Bash(BashKernel):
            """BashKernel that takes a TAB for itself: code is typed into an interactive bash."""

            def _start_bash(self):
                super()._start_bash()
                self.bashwrapper.run_command("bind 'set disable-completion on'")

        options["kernel_class"] = Bash
    else:
        options["exec_lines"] = ["from sandlane_interpreter import startup as _startup; _startup.install(get_ipython()); del _startup"]
    App.launch_instance(**options)


if __name__ == "__main__":
    main()
