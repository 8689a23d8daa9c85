"""Stories told by the official Python client, of either generation, to a real server.

    stories.py MOTU STORY [ARGUMENTS]

What a story sees is checked with `assert`; the exit code says how it went. A new client
negotiates the stateless revision, an old one the handshake; `legacy` makes a new one shake
hands too.
"""

import asyncio
import contextlib
import json
import os
import sys
from importlib.metadata import version

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

NEW = int(version("mcp").split(".")[0]) >= 2
if NEW:
    from mcp import Client
    from mcp.shared.exceptions import MCPError
    from mcp_types import ElicitResult
else:
    from mcp.shared.exceptions import McpError as MCPError
    from mcp.types import ElicitResult
    from pydantic import AnyUrl

MOTU = sys.argv[1]


class Asked:
    """A person who answers every question the same way."""

    def __init__(self, approve):
        self.approve = approve
        self.questions = []

    async def __call__(self, context, params):
        self.questions.append(params.message)
        return ElicitResult(action="accept", content={"approve": self.approve})


class Answer:
    def __init__(self, result):
        self.is_error = result.is_error if NEW else result.isError
        self.known = result.structured_content if NEW else result.structuredContent
        self.text = "".join(block.text for block in result.content if block.type == "text")
        self.images = [block for block in result.content if block.type == "image"]


class Server:
    def __init__(self, session):
        self.session = session

    async def tools(self):
        return {tool.name: tool for tool in (await self.session.list_tools()).tools}

    async def call(self, tool, progress=None, /, **arguments):
        return Answer(await self.session.call_tool(tool, arguments, progress_callback=progress))

    async def told(self, tool, progress=None, /, **arguments):
        answer = await self.call(tool, progress, **arguments)
        assert not answer.is_error, f"{tool}: {answer.text}"
        return answer.known

    async def refused(self, tool, /, **arguments):
        answer = await self.call(tool, **arguments)
        assert answer.is_error, f"{tool}: {answer.text}"
        assert answer.text.startswith(answer.known["kind"] + ": "), answer.text
        return answer.known

    async def read(self, uri):
        read = await self.session.read_resource(uri if NEW else AnyUrl(uri))
        return read.contents[0].text

    async def unread(self, uri):
        """Why a resource is refused."""
        try:
            await self.read(uri)
        except MCPError as error:
            return str(error)
        raise AssertionError(f"{uri} was read")


@contextlib.asynccontextmanager
async def serve(profile, *flags, person=None, mode="auto", heard=None):
    parameters = StdioServerParameters(
        command=MOTU, args=["mcp", "serve", "--profile", profile, *flags], env=dict(os.environ)
    )
    if NEW:
        async with Client(parameters, elicitation_callback=person, mode=mode, message_handler=heard) as client:
            expected = "2026-07-28" if mode == "auto" else "2025-11-25"
            assert client.protocol_version == expected, client.protocol_version
            yield Server(client)
    else:
        async with stdio_client(parameters) as (read, write):
            async with ClientSession(read, write, elicitation_callback=person, message_handler=heard) as session:
                await session.initialize()
                yield Server(session)


async def profiles(expected):
    """Each profile lists exactly its tools."""
    for profile, names in json.loads(expected).items():
        async with serve(profile) as server:
            assert sorted(await server.tools()) == sorted(names), profile
    socket = os.path.join(os.environ["MOTU_HOME"], "daemon.sock")
    assert not os.path.exists(socket), "listing tools started a daemon"


async def vm():
    async with serve("vm-run") as server:
        heard = []

        async def progress(done, total, message):
            heard.append(message)

        ran = await server.told(
            "vm_run", progress, command="echo out; echo err >&2; sleep 1.5; exit 3", environment="busybox"
        )
        assert (ran["exit_code"], ran["stdout"], ran["stderr"]) == (3, "out\n", "err\n"), ran
        assert ran["isolation"] == "container", ran
        assert any("bytes of output" in message for message in heard), heard
        ran = await server.told("vm_run", command="sleep 60", environment="busybox", timeout_seconds=1)
        assert ran["timed_out"] and ran["exit_code"] != 0, ran
        ran = await server.told("vm_run", command="seq 1 50000", environment="busybox")
        assert ran["truncated"] and ran["stdout"].endswith("50000\n"), ran["stdout"][-50:]
        assert (await server.read(ran["rest"])).startswith("1\n2\n3\n")
        refused = await server.refused("vm_run", command="true", environment="busybox", comand="x")
        assert refused["kind"] == "invalid" and "command" in refused["hint"], refused
        refused = await server.refused("vm_run", command="true", environment="nothing:1")
        assert refused["kind"] == "not_found", refused


async def machines():
    async with serve("workspace-full", "--approvals", "auto") as server:
        names = [one["name"] for one in (await server.told("vm_list_environments"))["environments"]]
        assert "busybox" in names, names
        made = await server.told("vm_create", environment="busybox")
        vm = made["vm_id"]
        assert (await server.told("vm_network_info", vm_id=vm))["network_enabled"] is False
        assert (await server.told("vm_stop", vm_id=vm))["state"] == "stopped"
        assert (await server.told("vm_start", vm_id=vm))["state"] == "running"
        ran = await server.told("vm_exec", vm_id=vm, command="echo once")
        assert ran["stdout"] == "once\n", ran
        gone = await server.call("vm_status", vm_id=vm)
        assert gone.is_error or gone.known["state"] == "destroyed", gone.known
        made = await server.told("vm_create", environment="busybox")
        assert (await server.told("vm_delete", vm_id=made["vm_id"]))["state"] in ("destroying", "destroyed")
        await server.told("vm_reap_expired")


PATCH = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,2 @@\n one\n+two\n"


async def workspace(directory):
    seed = os.path.join(directory, "seed")
    os.makedirs(seed)
    with open(os.path.join(seed, "a.txt"), "w") as file:
        file.write("one\n")
    async with serve("workspace-full", "--host-dir", directory) as server:
        made = await server.told("workspace_create", environment="busybox", seed_path=seed, name="try")
        ws = made["workspace_id"]
        written = await server.told("workspace_file_write", workspace_id=ws, path="/workspace/d/b", text="b\n")
        assert written["bytes_written"] == 2, written
        ran = await server.told("workspace_exec", workspace_id=ws, command="cat a.txt d/b; echo new > c")
        assert ran["stdout"] == "one\nb\n", ran
        await server.told("workspace_patch_apply", workspace_id=ws, patch=PATCH)
        read = await server.told("workspace_file_read", workspace_id=ws, path="/workspace/a.txt")
        assert read["content"] == "one\ntwo\n", read
        diff = await server.told("workspace_diff", workspace_id=ws)
        assert {"/workspace/a.txt", "/workspace/c"} <= {at(entry) for entry in diff["entries"]}, diff
        assert "+two" in diff["patch"], diff
        await server.told("snapshot_create", workspace_id=ws, snapshot_name="good")
    # Nothing hangs on the connection.
    async with serve("workspace-full", "--approvals", "auto", "--host-dir", directory) as server:
        assert ws in [one["workspace_id"] for one in (await server.told("workspace_list"))["workspaces"]]
        await server.told("workspace_exec", workspace_id=ws, command="rm -r ./*")
        await server.told("workspace_reset", workspace_id=ws, snapshot="good")
        listed = await server.told("workspace_file_list", workspace_id=ws, recursive=True)
        assert "/workspace/c" in [entry["path"] for entry in listed["entries"]], listed
        logs = await server.told("workspace_logs", workspace_id=ws)
        assert logs["count"] == 0, logs
        await server.told("workspace_exec", workspace_id=ws, command="echo noted")
        assert "noted" in await server.read(f"motu://workspaces/{ws}/logs")
        assert "+two" in await server.read(f"motu://workspaces/{ws}/diff")
        async with serve("vm-run") as other:
            for part in ["logs", "diff"]:
                assert "no such resource" in await other.unread(f"motu://workspaces/{ws}/{part}")
        out = os.path.join(directory, "out")
        await server.told("workspace_export", workspace_id=ws, path="/workspace/a.txt", output_path=out)
        with open(out) as file:
            assert file.read() == "one\ntwo\n"
        await server.told("workspace_sync_push", workspace_id=ws, source_path=seed, dest="/workspace/again")
        named = await server.told("workspace_update", workspace_id=ws, labels={"team": "red"}, clear_name=True)
        assert named["labels"] == {"team": "red"} and named["name"] is None, named
        await server.told("workspace_stop", workspace_id=ws)
        disk = await server.told("workspace_disk_read", workspace_id=ws, path="/workspace/again/a.txt")
        assert disk["content"] == "one\n", disk
        await server.told("workspace_start", workspace_id=ws)
        names = [one["snapshot_name"] for one in (await server.told("snapshot_list", workspace_id=ws))["snapshots"]]
        assert names == ["baseline", "good"], names
        await server.told("snapshot_delete", workspace_id=ws, snapshot_name="good")
        await server.told("workspace_delete", workspace_id=ws)
        gone = await server.refused("workspace_status", workspace_id=ws)
        assert gone["kind"] == "not_found", gone


def at(entry):
    path = entry["path"]
    return path if path.startswith("/") else f"/workspace/{path}"


async def services():
    async with serve("workspace-full", "--approvals", "never") as server:
        secrets = [{"name": "KEY", "value": "hush"}]
        made = await server.told("workspace_create", environment="busybox", secrets=secrets)
        ws = made["workspace_id"]
        ran = await server.told("workspace_exec", workspace_id=ws, command="echo ${#TOKEN}", secret_env={"KEY": "TOKEN"})
        assert ran["stdout"] == "4\n", ran
        started = await server.told(
            "service_start",
            workspace_id=ws,
            service_name="clock",
            command="echo ready; while true; do date; sleep 1; done",
            readiness={"type": "log", "pattern": "ready"},
        )
        assert started["state"] == "running", started
        assert "ready" in (await server.told("service_logs", workspace_id=ws, service_name="clock"))["stdout"]
        assert (await server.told("service_list", workspace_id=ws))["count"] == 1
        stopped = await server.told("service_stop", workspace_id=ws, service_name="clock")
        assert stopped["state"] == "stopped", stopped
        status = await server.told("service_status", workspace_id=ws, service_name="clock")
        assert status["state"] == "stopped", status
        shell = await server.told("shell_open", workspace_id=ws)
        sh = {"workspace_id": ws, "shell_id": shell["shell_id"]}
        await server.told("shell_write", input="X=41; cd /tmp", **sh)
        await server.told("shell_write", input="echo $((X + 1)) in $PWD", **sh)
        seen, cursor = "", 0
        for _ in range(50):
            read = await server.told("shell_read", cursor=cursor, plain=True, wait_for_idle_ms=300, **sh)
            seen, cursor = seen + read["output"], read["next_cursor"]
            if "42 in /tmp" in seen:
                break
        assert "42 in /tmp" in seen, seen
        await server.told("shell_signal", **sh)
        await server.told("shell_close", **sh)
        await server.told("workspace_delete", workspace_id=ws)


async def approvals():
    for mode in ["auto", "legacy"] if NEW else ["auto"]:
        no, yes = Asked(False), Asked(True)
        async with serve("workspace-full", person=no, mode=mode) as server:
            ws = (await server.told("workspace_create", environment="busybox"))["workspace_id"]
            refused = await server.refused("workspace_delete", workspace_id=ws)
            assert refused["kind"] == "denied" and ws in no.questions[0], refused
            refused = await server.refused("workspace_create", environment="busybox", network_policy="egress")
            assert refused["kind"] == "denied" and "egress" in no.questions[1], refused
        # A client that cannot ask is refused, unless whoever runs the server has approved it.
        async with serve("workspace-full", mode=mode) as server:
            refused = await server.refused("workspace_delete", workspace_id=ws)
            assert refused["kind"] == "denied" and "--approvals" in refused["hint"], refused
            refused = await server.refused("workspace_reset", workspace_id=ws)
            assert refused["kind"] == "denied", refused
            refused = await server.refused("workspace_create", environment="busybox", network_policy="egress")
            assert refused["kind"] == "denied", refused
            assert (await server.told("workspace_status", workspace_id=ws))["state"] == "running"
        async with serve("workspace-full", person=yes, mode=mode) as server:
            await server.told("workspace_delete", workspace_id=ws)
            assert len(yes.questions) == 1, yes.questions


class Pipes:
    """A client that speaks the protocol by hand, to leave in ways a good one does not."""

    def __init__(self, process, output):
        self.process = process
        self.output = output

    @staticmethod
    async def open(profile):
        reads, writes = os.pipe()
        process = await asyncio.create_subprocess_exec(
            MOTU, "mcp", "serve", "--profile", profile, stdin=asyncio.subprocess.PIPE, stdout=writes
        )
        os.close(writes)
        pipes = Pipes(process, open(reads, "rb"))
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"}}
        pipes.send(id=1, method="initialize", params=hello)
        await asyncio.to_thread(pipes.output.readline)
        pipes.send(method="notifications/initialized")
        return pipes

    def send(self, **message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def call(self, tool, **arguments):
        self.send(id=2, method="tools/call", params={"name": tool, "arguments": arguments})


async def leaving():
    """A client that gives up, reads no more, asks the server to leave or dies takes its command with it."""

    def gives_up(pipes):
        pipes.send(method="notifications/cancelled", params={"requestId": 2})

    def closes(pipes):
        pipes.process.stdin.close()
        pipes.output.close()

    def asks(pipes):
        # As the protocol has it: the input alone is closed, and then a signal is sent.
        pipes.process.stdin.close()
        pipes.process.terminate()

    def dies(pipes):
        pipes.process.kill()

    async with serve("workspace-full", "--approvals", "auto") as server:
        ws = (await server.told("workspace_create", environment="busybox"))["workspace_id"]
        for leave in [gives_up, closes, asks, dies]:
            pipes = await Pipes.open("workspace-full")
            pipes.call("workspace_exec", workspace_id=ws, command="sleep 4242", timeout_seconds=600)
            await until(lambda there: there, server, ws)
            leave(pipes)
            await until(lambda there: not there, server, ws)
            pipes.process.stdin.close()
            await asyncio.wait_for(pipes.process.wait(), 20)
            pipes.output.close()
        await server.told("workspace_delete", workspace_id=ws)


async def until(wanted, server, ws):
    for _ in range(150):
        if wanted(await processes(server, ws)):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the command did not begin or end as it should")


async def processes(server, ws):
    ran = await server.told("workspace_exec", workspace_id=ws, command="ps | grep 'sleep 424[2]' || true")
    return ran["stdout"]


@contextlib.asynccontextmanager
async def connect(url, headers):
    """A client over HTTP."""
    async with create_mcp_http_client(headers=headers) as plain:
        if NEW:
            async with Client(streamable_http_client(url, http_client=plain)) as client:
                yield Server(client)
        else:
            async with streamable_http_client(url, http_client=plain) as (read, write, _):
                async with ClientSession(read, write) as session:
                    await session.initialize()
                    yield Server(session)


async def turned_away(url, headers):
    """The official client gets nothing, and a plain request hears why."""
    try:
        async with asyncio.timeout(30), connect(url, headers) as client:
            await client.tools()
    except BaseException as error:
        assert not isinstance(error, TimeoutError), "a client without the token waits for ever"
    else:
        raise AssertionError("a client without the token is served")
    async with create_mcp_http_client(headers=headers) as plain:
        answer = await plain.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert answer.status_code == 401 and "Authorization: Bearer" in answer.text, answer.text


async def http():
    """Over HTTP there is always a token: one is made, and shown once, when none is given."""
    server = await asyncio.create_subprocess_exec(
        MOTU, "mcp", "serve", "--http", "127.0.0.1:0", "--approvals", "auto", stderr=asyncio.subprocess.PIPE
    )
    line = (await server.stderr.readline()).decode()
    url = line.removeprefix("serving MCP at ").strip()
    assert url.startswith("http://127.0.0.1:"), line
    assert "token" in (await server.stderr.readline()).decode()
    name, token = (await server.stderr.readline()).decode().strip().split(": ")
    assert name == "Authorization" and len(token) > len("Bearer ") + 50, (name, token)
    for wrong in [{}, {"Authorization": token[:-1]}, {"Authorization": token[:-1] + "!"}]:
        await turned_away(url, wrong)
    headers = {"Authorization": token}
    async with connect(url, headers) as client:
        assert len(await client.tools()) == 44
        ran = await client.told("vm_run", command="echo over http", environment="busybox")
        assert ran["stdout"] == "over http\n", ran
        ws = (await client.told("workspace_create", environment="busybox"))["workspace_id"]
    async with connect(url, headers) as client:
        ran = await client.told("workspace_exec", workspace_id=ws, command="echo still there")
        assert ran["stdout"] == "still there\n", ran
        await client.told("workspace_delete", workspace_id=ws)
    server.terminate()
    assert await asyncio.wait_for(server.wait(), 20) == 0


async def terminal():
    async with serve("terminal", "--share-sessions") as server:
        looked = await server.told("get_screen", session_id="one")
        assert looked["status"] == "unknown", looked
        ran = await server.told("run", session_id="one", command="cd /tmp && echo hi; (exit 3)")
        assert (ran["output"], ran["exit_code"], ran["status"]) == ("hi\n", 3, "ready"), ran
        heard = []

        async def progress(done, total, message):
            heard.append(message)

        ran = await server.told("run", progress, session_id="one", command="echo begun; sleep 4.5; echo done")
        assert ran["output"] == "begun\ndone\n" and any("bytes" in message for message in heard), (ran, heard)
        ran = await server.told("run", session_id="one", command="sleep 1; echo done")
        # Counted from when its beginning was seen, which may be a moment late.
        assert ran["output"] == "done\n" and ran["duration_ms"] >= 900, ran
        ran = await server.told("run", session_id="one", command="sleep 60", timeout=0.5)
        assert ran["timed_out"] and ran["status"] == "running", ran
        ran = await server.told("send_control", session_id="one", key="c")
        assert ran["status"] == "ready", ran
        await server.told("run", session_id="one", command="(sleep 1; echo port 8080) &")
        found = await server.told("expect", session_id="one", pattern=r"port (\d+)")
        assert found["matched"] and found["groups"] == ["8080"], found
        asked = await server.told("run", session_id="one", command="read -s -p 'Password: ' P; echo got ${#P}")
        assert asked["status"] == "password", asked
        typed = await server.told("send_password", session_id="one", password="hunter22")
        assert "got 8" in typed["output"] and "hunter22" not in json.dumps(typed), typed
    async with serve("terminal", "--share-sessions", "--approvals", "auto") as server:
        screen = await server.told("get_screen", session_id="one")
        assert "got 8" in screen["screen"] and "hunter22" not in screen["screen"], screen
        picture = await server.call("get_screen", session_id="one", format="png")
        assert len(picture.images) == 1, picture.text
        await server.told("resize", session_id="one", cols=100, rows=30)
        meta = await server.told("get_metadata", session_id="one")
        assert (meta["cols"], meta["rows"], meta["cwd"]) == (100, 30, "/tmp"), meta
        assert "got 8" in (await server.told("get_scrollback", session_id="one"))["scrollback"]
        assert "done" in await server.read("motu://terminals/one/transcript")
        # The transcript is no resource of a server with another profile.
        for profile in ["vm-run", "workspace-core", "workspace-full"]:
            async with serve(profile) as other:
                for part in ["transcript", "recording", "screen"]:
                    assert "no such resource" in await other.unread(f"motu://terminals/one/{part}")
        sessions = (await server.told("list_sessions"))["sessions"]
        assert [one["session_id"] for one in sessions] == ["one"], sessions
        assert (await server.told("terminate", session_id="one"))["status"] == "terminated"
        ran = await server.told("run", session_id="one", command="echo again")
        assert ran["status"] == "terminated", ran
    async with serve("terminal", "--explicit-sessions", "--approvals", "auto") as server:
        ran = await server.told("run", session_id="two", command="true")
        assert ran["status"] == "unknown" and "create_session" in ran["state_reason"], ran
        made = await server.told("create_session", session_id="two", cwd="/", description="second")
        assert made["created"] and made["cwd"] == "/", made
        set_ = await server.told("configure_session", session_id="two", tag="again")
        assert set_["description"] == "again", set_
        await server.told("terminate", session_id="two")


LIVE = "motu://terminals/live/screen"
# Begins to print when it is told to, so that nothing is printed before somebody listens.
TICKS = "read; for n in 1 2 3; do echo tick $n; sleep 1; done"


async def followed(server, changed):
    """Starts a command, and reads the screen whenever it has changed, until the command is done."""
    await server.told("run", session_id="live", command="clear", timeout=20)
    await server.told("run", session_id="live", command=TICKS, timeout=2)
    await server.told("send_input", session_id="live", text="\n", timeout=0)
    seen = []
    while "tick 3" not in "".join(seen[-1:]):
        assert await asyncio.wait_for(changed(), 60) == LIVE
        seen.append(await server.read(LIVE))
    # It was told while the command ran, not only when it had ended.
    assert any("tick 1" in text and "tick 3" not in text for text in seen), seen
    assert (await server.told("expect_prompt", session_id="live", timeout=60))["status"] == "ready"


async def live():
    """What a session prints, as a resource that a client follows."""
    for mode in ["auto", "legacy"] if NEW else ["auto"]:
        news = asyncio.Queue()

        async def heard(message):
            params = getattr(getattr(message, "root", message), "params", None)
            if getattr(params, "uri", None):
                news.put_nowait(str(params.uri))

        async with serve("terminal", "--share-sessions", "--approvals", "auto", mode=mode, heard=heard) as server:
            await server.told("create_session", session_id="live")
            if NEW and mode == "auto":
                async with server.session.listen(resource_subscriptions=[LIVE]) as subscription:
                    events = aiter(subscription)

                    async def changed():
                        return str((await anext(events)).uri)

                    await followed(server, changed)
            else:
                uri = LIVE if NEW else AnyUrl(LIVE)
                await server.session.subscribe_resource(uri)
                await followed(server, news.get)
                await server.session.unsubscribe_resource(uri)
                while not news.empty():
                    news.get_nowait()
                await server.told("run", session_id="live", command="echo unheard")
                assert news.empty(), "told after it has left"
            await server.told("terminate", session_id="live")


async def decisions(sandbox):
    """What was decided about a sandbox's traffic is read, and whoever subscribes is told of more."""
    uri = f"motu://sandboxes/{sandbox}/decisions"
    told = asyncio.Event()

    async def heard(message):
        note = getattr(message, "root", message)
        if getattr(note, "method", "") == "notifications/resources/updated":
            assert str(note.params.uri) == uri, note
            told.set()

    async with serve("workspace-full", mode="legacy", heard=heard) as server:
        before = await server.read(uri)
        assert "good.example" in before, before
        for line in before.splitlines():
            json.loads(line)
        await server.session.subscribe_resource(uri if NEW else AnyUrl(uri))
        name = f"{os.getpid()}.example"
        script = f"curl -sS -m 10 http://{name}/"
        process = await asyncio.create_subprocess_exec(MOTU, "exec", sandbox, "--", "sh", "-c", script)
        await process.wait()
        await asyncio.wait_for(told.wait(), 60)
        # Only what came since then.
        after = await server.read(f"{uri}?offset={len(before.encode())}")
        assert name in after and "good.example" not in after, after
    async with serve("workspace-core") as server:
        assert "no such resource" in await server.unread(uri)


async def host(allowed):
    """Sessions on the host: only where the daemon's owner allows it, and where the client is."""
    async with serve("terminal", "--host", "--approvals", "auto") as server:
        ran = await server.call("run", session_id="here", command="pwd")
        if allowed == "no":
            assert ran.is_error and ran.known["kind"] == "denied", ran.text
            return
        assert ran.known["output"].strip() == os.getcwd(), ran.text
        meta = await server.told("get_metadata", session_id="here")
        assert meta["isolation"] == "none", meta
        await server.told("terminate", session_id="here")


asyncio.run(globals()[sys.argv[2]](*sys.argv[3:]))
