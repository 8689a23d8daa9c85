"""An internet of its own for a test: names, plain HTTP and TLS. Prints `ready` when it serves.

usage: internet.py ADDRESS CERTIFICATE NAME=ADDRESS...
"""

import http.server
import socket
import socketserver
import ssl
import struct
import sys
import threading

address, certificate = sys.argv[1:3]
names = dict(word.split("=") for word in sys.argv[3:])


class Names(socketserver.BaseRequestHandler):
    def handle(self):
        question, sock = self.request
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode())
            at += 1 + question[at]
        kind = struct.unpack(">H", question[at + 1 : at + 3])[0]
        found = names.get(".".join(labels).lower())
        head = question[:2] + struct.pack(">HHHHH", 0x8180, 1, int(kind == 1 and found is not None), 0, 0)
        answer = head + question[12 : at + 5]
        if kind == 1 and found:
            answer += struct.pack(">HHHIH", 0xC00C, 1, 1, 60, 4) + socket.inet_aton(found)
        sock.sendto(answer, self.client_address)


class Pages(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = f"page of {self.headers['Host']}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def serve(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()


serve(socketserver.ThreadingUDPServer((address, 53), Names))
serve(Server((address, 80), Pages))
secure = Server((address, 443), Pages)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate)
secure.socket = context.wrap_socket(secure.socket, server_side=True)
serve(secure)
print("ready", flush=True)
# Ends with whoever started it.
sys.stdin.read()
