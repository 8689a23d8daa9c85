// A host of its own for a test: TLS with HTTP/1.1 and HTTP/2. Writes down what it is asked, one JSON
// line each, and tells whoever asks nothing of it, but what it was sent at `/echo`. Prints `ready` when it serves.
//
// usage: host.js ADDRESS PORT CERTIFICATE KEY LOG

const fs = require("node:fs");
const http2 = require("node:http2");

const [address, port, certificate, key, log] = process.argv.slice(2);

const server = http2.createSecureServer(
  { cert: fs.readFileSync(certificate), key: fs.readFileSync(key), allowHTTP1: true },
  (request, response) => {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => {
      const line = {
        name: request.socket.servername ?? request.stream.session.socket.servername,
        version: request.httpVersion,
        method: request.method,
        url: request.url,
        headers: request.headers,
        body: Buffer.concat(parts).toString(),
      };
      fs.appendFileSync(log, JSON.stringify(line) + "\n");
      response.end(request.url === "/echo" ? request.headers["x-key"] : "taken\n");
    });
  },
);
server.listen(Number(port), address, () => console.log("ready"));
// Ends with whoever started it.
process.stdin.on("end", () => process.exit(0)).resume();
