"""An internet of its own for a test: names, plain HTTP, TLS and echoes of datagrams. Prints `ready` when it serves.

usage: internet.py ADDRESS ADDRESS6 CERTIFICATE NAME=ADDRESS[,ADDRESS]...
"""

import http.server
import socket
import socketserver
import ssl
import struct
import sys
import threading

address, address6, certificate = sys.argv[1:4]
names = dict(word.split("=") for word in sys.argv[4:])
families = {1: socket.AF_INET, 28: socket.AF_INET6}


class Names(socketserver.BaseRequestHandler):
    def handle(self):
        question, sock = self.request
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode())
            at += 1 + question[at]
        kind = struct.unpack(">H", question[at + 1 : at + 3])[0]
        found = names.get(".".join(labels).lower(), "").split(",")
        found = [one for one in found if one and (":" in one) == (kind == 28) and kind in families]
        head = question[:2] + struct.pack(">HHHHH", 0x8180, 1, len(found), 0, 0)
        answer = head + question[12 : at + 5]
        for one in found:
            packed = socket.inet_pton(families[kind], one)
            answer += struct.pack(">HHHIH", 0xC00C, kind, 1, 60, len(packed)) + packed
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


class Echoes(socketserver.BaseRequestHandler):
    def handle(self):
        datagram, sock = self.request
        sock.sendto(b"echo of " + datagram, self.client_address)


class Server6(http.server.ThreadingHTTPServer):
    daemon_threads = True
    address_family = socket.AF_INET6


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def serve(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()


serve(socketserver.ThreadingUDPServer((address, 53), Names))
for port in (123, 443):
    serve(socketserver.ThreadingUDPServer((address, port), Echoes))
serve(Server((address, 80), Pages))
serve(Server6((address6, 80), Pages))
secure = Server((address, 443), Pages)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate)
secure.socket = context.wrap_socket(secure.socket, server_side=True)
serve(secure)
print("ready", flush=True)
# Ends with whoever started it.
sys.stdin.read()
