"""What differs between the languages: how a kernel starts, and how variables are set in
one that runs already.

The code that sets variables is data first: names and values are literals made by `ascii`
(Python), `json` (JavaScript) or `_bash_literal`, so no value can end its literal and run.
"""

import json
import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from typing import Callable

from jupyter_client.kernelspec import KernelSpec

ALIASES = {"js": "javascript", "ts": "typescript", "sh": "bash", "python3": "python", "py": "python"}


# E2B's template has kernels of these too.
OWN_IMAGE = ("r", "java")


class UnknownLanguage(Exception):
    """A language without a kernel here. Its text is for a person."""


@dataclass(frozen=True)
class Language:
    """One kind of kernel.

    argv: the command of a kernel; `{connection_file}` is replaced.
    set_variables: code that sets the variables of a dictionary, and with `keep` notes
    what they were.
    restore: code that brings back what the last `set_variables` noted.
    interrupts: how a running cell is interrupted, as Jupyter's `interrupt_mode`.
    variables: the environment of a kernel, beside the server's.
    transport: how a kernel is reached: by sockets in the file system where it can.
    fence: code that sends a message of type `comm_msg`, for a kernel that may send a cell's
    result after it said that the cell has ended: it sends the message behind the result.
    Empty: not needed.
    """

    argv: tuple[str, ...]
    set_variables: Callable[[dict[str, str], bool], str]
    restore: str
    interrupts: str = "signal"
    variables: tuple[tuple[str, str], ...] = ()
    transport: str = "ipc"
    fence: str = ""

    def spec(self, name):
        return KernelSpec(
            argv=list(self.argv), display_name=name, language=name, interrupt_mode=self.interrupts, env=dict(self.variables)
        )


def _python(variables, keep):
    return f"from sandlane_interpreter import variables as _sandlane; _sandlane.set({ascii(variables)}, {keep}); del _sandlane"


_PYTHON_RESTORE = "from sandlane_interpreter import variables as _sandlane; _sandlane.restore(); del _sandlane"


def _deno(variables, keep):
    kept = "globalThis.__sandlaneEnv = Object.fromEntries(Object.keys(v).map((k) => [k, Deno.env.get(k)])); " if keep else ""
    return f"((v) => {{ {kept}for (const k in v) Deno.env.set(k, v[k]); }})({json.dumps(variables)}); undefined"


_DENO_RESTORE = (
    "((v) => { for (const k in v) v[k] === undefined ? Deno.env.delete(k) : Deno.env.set(k, v[k]); "
    "delete globalThis.__sandlaneEnv; })(globalThis.__sandlaneEnv ?? {}); undefined"
)


def _bash(variables, keep):
    lines = []
    if keep:
        names = " ".join(shlex.quote(name) for name in variables)
        lines.append(f"__sandlane_env=$(for n in {names}; do [ -n \"${{!n+x}}\" ] && printf 'export %s=%q\\n' \"$n\" \"${{!n}}\" || printf 'unset %s\\n' \"$n\"; done)")
    lines += [f"export {name}={_bash_literal(value)}" for name, value in variables.items()]
    return "\n".join(lines)


def _bash_literal(value):
    """Returns $'...' of printable ASCII. bash_kernel types code into a terminal: readline there
    takes a TAB for a command, and pexpect breaks lines at U+2028."""
    plain = (c if c.isascii() and c.isprintable() and c not in "'\\!" else "".join(f"\\{b:03o}" for b in c.encode()) for c in value)
    return "$'" + "".join(plain) + "'"


_BASH_RESTORE = 'eval "$__sandlane_env"; unset __sandlane_env'


def _deno_program():
    """Returns the path of deno: on PATH, or among the programs of the folder that has the
    interpreter's packages."""
    folders = os.environ.get("PATH", "").split(os.pathsep) + [os.path.join(entry, "bin") for entry in sys.path]
    return shutil.which("deno", path=os.pathsep.join(folders)) or "deno"


_DENO = Language(
    argv=(_deno_program(), "jupyter", "--kernel", "--conn", "{connection_file}"),
    set_variables=_deno,
    restore=_DENO_RESTORE,
    interrupts="message",
    transport="tcp",  # it knows no other
    fence='await Deno.jupyter.broadcast("comm_msg", { comm_id: "fence", data: {} })',
    variables=(("DENO_UNSTABLE_BARE_NODE_BUILTINS", "1"), ("DENO_NO_UPDATE_CHECK", "1"), ("NO_COLOR", "1")),
)

LANGUAGES = {
    "python": Language(
        argv=(sys.executable, "-m", "sandlane_interpreter.launch", "python", "-f", "{connection_file}"),
        set_variables=_python,
        restore=_PYTHON_RESTORE,
        variables=(("MPLBACKEND", "module://matplotlib_inline.backend_inline"),),
    ),
    "javascript": _DENO,
    "typescript": _DENO,
    "bash": Language(
        argv=(sys.executable, "-m", "sandlane_interpreter.launch", "bash", "-f", "{connection_file}"),
        set_variables=_bash,
        restore=_BASH_RESTORE,
    ),
}


def normalize(name):
    """Returns the name of the language that a client means; none is Python. It raises
    UnknownLanguage for one without a kernel."""
    name = (name or "python").strip().lower()
    name = ALIASES.get(name, name)
    if name in OWN_IMAGE:
        raise UnknownLanguage(
            f"This sandbox has no kernel for {name}: its template would need an image of your own with one "
            f"(docs/images.md, Code interpreter); this one has {', '.join(LANGUAGES)}"
        )
    if name not in LANGUAGES:
        raise UnknownLanguage(f"No kernel for the language {name!r} in this sandbox: it has {', '.join(LANGUAGES)}")
    return name
