"""The site of good.example.org, by http.server, which reads no bodies that its handlers do not read."""

import http.server
import posixpath
import sys
import urllib.parse


class Site(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        parts = urllib.parse.urlsplit(self.path)
        # A target with a scheme and a host comes before the header.
        host = (parts.netloc if parts.scheme else self.headers.get("Host", "")).split(":")[0]
        path = self.path.split("?")[0] if self.path.startswith("/") else parts.path
        path = posixpath.normpath(urllib.parse.unquote(path))
        if host != "good.example.org":
            text = b"SECRET host\n"
        elif path == "/open/last":
            text = b"LAST\n"
        elif path == "/open" or path.startswith("/open/"):
            text = b"OPEN\n"
        else:
            text = b"SECRET path\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_DELETE = do_GET

    def do_POST(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline(), 16):
                self.rfile.read(size + 2)
            while self.rfile.readline().strip():
                pass
        else:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


Server((sys.argv[1], int(sys.argv[2])), Site).serve_forever()
