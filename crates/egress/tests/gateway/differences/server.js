// The site of good.example.org, by Node.js.
const http = require("http");
const path = require("path");

const [address, port] = process.argv.slice(2);

function text(request) {
  const host = (request.headers.host || "").split(":")[0];
  // As frameworks do that take targets with a host.
  const target = new URL(request.url, "http://" + host);
  if (target.hostname !== "good.example.org") return "SECRET host\n";
  let place = request.url.startsWith("/") ? request.url.split("?")[0] : target.pathname;
  place = path.posix.normalize(decodeURIComponent(place));
  if (place === "/open/last") return "LAST\n";
  return place === "/open" || place.startsWith("/open/") ? "OPEN\n" : "SECRET path\n";
}

http
  .createServer((request, response) => {
    let answer;
    try {
      answer = text(request);
    } catch {
      answer = "neither\n";
    }
    response.setHeader("Content-Length", answer.length);
    response.end(answer);
  })
  .listen(Number(port), address);
