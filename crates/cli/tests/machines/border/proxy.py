# A proxy of a company: takes CONNECT, writes down where to, and passes bytes on. Names are not
# resolved: all of this internet is one address. Prints `ready` when it serves.
# usage: proxy.py ADDRESS PORT LOG

import asyncio
import sys

address, port, log = sys.argv[1:]


async def pass_on(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def serve(reader, writer):
    head = await reader.readuntil(b"\r\n\r\n")
    method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
    with open(log, "a") as lines:
        lines.write(f"{method} {target}\n")
    to = await asyncio.open_connection(address, int(target.rsplit(":", 1)[1]))
    writer.write(b"HTTP/1.1 200 fine\r\n\r\n")
    await asyncio.gather(pass_on(reader, to[1]), pass_on(to[0], writer))


async def main():
    server = await asyncio.start_server(serve, address, int(port))
    print("ready", flush=True)
    # Ends with whoever started it.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


asyncio.run(main())
