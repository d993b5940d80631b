"""Translation of a kernel's messages into the lines that E2B's SDKs read.

Pure functions: a Jupyter message (https://jupyter-client.readthedocs.io, "Messaging") in,
a dictionary out. The names of the fields are those that `e2b_code_interpreter.models`
reads.
"""

import json
from datetime import datetime, timezone

# The MIME types that have a field of their own in a result; all others go into `extra`.
FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}


def encode(line):
    """Returns a line as it is sent."""
    return json.dumps(line, default=str).encode() + b"\n"


def line(message):
    """Returns the line for a message of the kernel's output channel, or None for one that
    a client does not see."""
    content = message["content"]
    match message["header"]["msg_type"]:
        case "stream":
            name = "stderr" if content["name"] == "stderr" else "stdout"
            return {"type": name, "text": content["text"], "timestamp": nanoseconds(message)}
        case "execute_result":
            return result(content["data"], main=True)
        case "display_data":
            return result(content["data"], main=False)
        case "error":
            return error(content["ename"], content["evalue"], "\n".join(content["traceback"]))
        case "execute_input":
            return {"type": "number_of_executions", "execution_count": content["execution_count"]}
    return None


def result(data, main):
    """Returns the line of something shown: `data` maps MIME types to values, `main` says
    whether it is the value of the cell's last expression."""
    shown = {"type": "result", "is_main_result": main}
    extra = {}
    for mime, value in data.items():
        field = FIELDS.get(mime)
        if field == "text":
            value = unquoted(str(value))  # users may display data of any type as text
        if field is None:
            extra[mime] = value
        else:
            shown[field] = value
    if extra:
        shown["extra"] = extra
    return shown


def unquoted(text):
    """Returns the text of a string's representation without its quotes: the SDKs' users
    compare `execution.text` with the string itself."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def error(name, value, traceback=""):
    return {"type": "error", "name": name, "value": value, "traceback": traceback}


def nanoseconds(message):
    """Returns when the kernel sent a message, in nanoseconds since 1970; now, if the
    message has no date."""
    date = message["header"].get("date")
    if isinstance(date, str):
        try:
            date = datetime.fromisoformat(date.replace("Z", "+00:00"))
        except ValueError:
            date = None
    if not isinstance(date, datetime):
        date = datetime.now(timezone.utc)
    return int(date.timestamp() * 1_000_000) * 1_000
