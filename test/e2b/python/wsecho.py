"""A WebSocket server for the inside of a sandbox, with what Python brings along.

Usage: wsecho.py PORT. It greets each client and then says what it hears.
"""

import base64
import hashlib
import socketserver
import sys

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CLOSE = 8


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        headers = {}
        while line := self.rfile.readline().strip():
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip()
        accept = base64.b64encode(hashlib.sha1(headers[b"sec-websocket-key"] + GUID).digest())
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                         b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        self.send(1, b"welcome")
        while len(head := self.rfile.read(2)) == 2:
            size = head[1] & 127
            if size == 126:
                size = int.from_bytes(self.rfile.read(2), "big")
            mask, data = self.rfile.read(4), self.rfile.read(size)
            plain = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
            self.send(head[0] & 15, plain)
            if head[0] & 15 == CLOSE:
                return

    def send(self, kind, data):
        size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + len(data).to_bytes(2, "big")
        self.wfile.write(bytes([0x80 | kind]) + size + data)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


Server(("0.0.0.0", int(sys.argv[1])), Echo).serve_forever()
