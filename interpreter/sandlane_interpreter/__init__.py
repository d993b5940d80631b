"""The code interpreter of a sandbox.

A server on port 49999 of a sandbox, to which E2B's `e2b-code-interpreter` SDKs send
code. It keeps one Jupyter kernel a context and streams what the kernel shows, a JSON
object a line. Which clients reach the port is the gateway's decision; the server itself
asks for no token.

`server` has the HTTP calls, `contexts` the kernels and what happens when one dies,
`languages` what differs between languages, `outputs` the translation of a kernel's
messages into the SDKs' lines, `startup` what runs first in each Python kernel.
"""
