"""`python -m sandlane_interpreter` serves until it is told to stop."""

import argparse
import logging
import os
import tempfile

from aiohttp import web

from .server import SANDBOXD, Interpreter


def main():
    parser = argparse.ArgumentParser(prog="sandlane_interpreter", description="Runs code for E2B's code interpreter SDKs.")
    parser.add_argument("--host", default=None, help="address to listen on (default: all)")
    parser.add_argument("--port", type=int, default=49999, help="port to listen on (default: %(default)s, where the SDKs look)")
    parser.add_argument("--cwd", default=os.path.expanduser("~"), help="working directory of contexts (default: the user's home)")
    parser.add_argument("--sandboxd", default=SANDBOXD, help="base URL of the sandbox's agent (default: %(default)s)")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="interpreter: %(levelname)s: %(message)s")
    app = Interpreter(args.cwd, args.sandboxd).app()
    # Short, for the sockets of kernels, whose paths are bounded at 107 bytes; and not in the
    # user's home, which pauses without memory keep.
    os.environ["JUPYTER_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="kernels-")
    web.run_app(app, host=args.host, port=args.port, access_log=None, handler_cancellation=True, shutdown_timeout=1, print=None)


if __name__ == "__main__":
    main()
