"""Servers of packages for a test: an index of Python, a registry of npm, a repository of Debian and
one of git, each under a name of its own. Prints `ready` when they serve.

usage: servers.py ADDRESS CERTIFICATE DIRECTORY NAME...
"""

import base64
import gzip
import hashlib
import http.server
import io
import json
import os
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import tarfile
import threading
import zipfile

address, certificate, directory = sys.argv[1:4]
names = sys.argv[4:]
WHEEL = "tiny_answer-1.0-py3-none-any.whl"
DEB = "tiny-answer_1.0_all.deb"


def wheel():
    """A wheel with one module."""
    info = "tiny_answer-1.0.dist-info"
    files = {
        "tiny_answer.py": "ANSWER = 42\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny-answer\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    listed = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": listed}.items():
            archive.writestr(name, text)
    return out.getvalue()


def packed(files):
    """Files as a compressed archive; a script may be run."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            info.mode = 0o755 if text.startswith("#!") else 0o644
            archive.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


CONTROL = "Package: tiny-answer\nVersion: 1.0\nArchitecture: all\nMaintainer: T <t@deb.example>\nDescription: tiny\n"


def deb():
    """A package with one program: an archive of `ar` with three members."""
    program = packed({"./usr/bin/tiny-answer": "#!/bin/sh\necho 42\n"})
    members = {"debian-binary": b"2.0\n", "control.tar.gz": packed({"./control": CONTROL}), "data.tar.gz": program}
    out = b"!<arch>\n"
    for name, content in members.items():
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode() + content
        out += b"\n" * (len(content) % 2)
    return out


def repository():
    """A repository of git with one file."""
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@git.example", "-c", "init.defaultBranch=main"]
    work = os.path.join(directory, "work")
    subprocess.run([*git, "init", "-q", work], check=True)
    with open(os.path.join(work, "answer"), "w") as file:
        file.write("42\n")
    subprocess.run([*git, "-C", work, "add", "answer"], check=True)
    subprocess.run([*git, "-C", work, "commit", "-q", "-m", "answer"], check=True)
    bare = os.path.join(directory, "bare", "tiny.git")
    subprocess.run([*git, "clone", "-q", "--bare", work, bare], check=True)


wheel, deb = wheel(), deb()
package = json.dumps({"name": "tiny-answer", "version": "1.0.0", "main": "main.js"})
tgz = packed({"package/package.json": package, "package/main.js": "module.exports = 42;\n"})
integrity = "sha512-" + base64.b64encode(hashlib.sha512(tgz).digest()).decode()
tarball = "https://npm.example/tiny-answer/-/tiny-answer-1.0.0.tgz"
version = {**json.loads(package), "dist": {"tarball": tarball, "integrity": integrity}}
packument = {"name": "tiny-answer", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
digest = hashlib.sha256(wheel).hexdigest()
listed = f"{CONTROL}Filename: ./{DEB}\nSize: {len(deb)}\nSHA256: {hashlib.sha256(deb).hexdigest()}\n\n"
PAGES = {
    ("pypi.example", "/simple/tiny-answer/"): (
        "text/html",
        f'<!DOCTYPE html><a href="/files/{WHEEL}#sha256={digest}">{WHEEL}</a>'.encode(),
    ),
    ("pypi.example", f"/files/{WHEEL}"): ("application/octet-stream", wheel),
    ("npm.example", "/tiny-answer"): ("application/json", json.dumps(packument).encode()),
    ("npm.example", "/tiny-answer/-/tiny-answer-1.0.0.tgz"): ("application/octet-stream", tgz),
    ("deb.example", "/Packages"): ("text/plain", listed.encode()),
    ("deb.example", f"/{DEB}"): ("application/octet-stream", deb),
}
repository()


class Pages(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        host = self.headers["Host"].split(":")[0]
        path, _, query = self.path.partition("?")
        if host == "git.example":
            return self.git(path, query, b"")
        # A flat repository is asked for with and without a dot.
        kind, body = PAGES.get((host, path.replace("/./", "/")), (None, b"nothing here\n"))
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind or "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def do_POST(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        path, _, query = self.path.partition("?")
        self.git(path, query, body)

    def git(self, path, query, body):
        """Answers by git's own program for this."""
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "GIT_PROJECT_ROOT": os.path.join(directory, "bare"),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "REMOTE_ADDR": "127.0.0.1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = [line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line]
        status = [value for name, value in fields if name == "Status"]
        self.send_response(int(status[0].split()[0]) if status else 200)
        for name, value in fields:
            if name != "Status":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


class Names(socketserver.BaseRequestHandler):
    def handle(self):
        question, sock = self.request
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode())
            at += 1 + question[at]
        kind = struct.unpack(">H", question[at + 1 : at + 3])[0]
        found = kind == 1 and ".".join(labels).lower() in names
        answer = question[:2] + struct.pack(">HHHHH", 0x8180, 1, int(found), 0, 0) + question[12 : at + 5]
        if found:
            answer += struct.pack(">HHHIH", 0xC00C, 1, 1, 60, 4) + socket.inet_aton(address)
        sock.sendto(answer, self.client_address)


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
secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
serve(secure)
print("ready", flush=True)
# Ends with whoever started it.
sys.stdin.read()
