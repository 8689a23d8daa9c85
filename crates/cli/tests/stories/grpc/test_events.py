"""Events, in a service of their own."""

import os
import pathlib
import subprocess
import sys

import contract_pb2 as pb
import grpc
from conftest import made, motu, refused

Code = grpc.StatusCode
PROTO = pathlib.Path(__file__).parents[4] / "grpc" / "proto"
PLACE = pathlib.Path(os.environ["TMPDIR"]) / "generated"
ARGUMENTS = ["-I", str(PROTO), f"--python_out={PLACE}", f"--grpc_python_out={PLACE}", "events/v1/events.proto"]
subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *ARGUMENTS], check=True)
from events.v1 import events_pb2 as ev  # noqa: E402
from events.v1 import events_pb2_grpc as rpc  # noqa: E402


def test_a_watcher_hears_what_happens_and_goes_on_where_it_was(channel, stub):
    events = rpc.EventsStub(channel)
    watching = events.Watch(ev.WatchRequest(tail=0, kinds=["sandbox"]))
    # The stream is open when its head is there.
    watching.initial_metadata()
    with made(stub) as box:
        created = next(watching)
        assert (created.kind, created.id) == ("sandbox.created", box.id)
        assert created.audit_id.startswith("run_")
        assert '"runtime":"container"' in created.facts
        stub.PauseSandbox(pb.PauseSandboxRequest(sandbox_id=box.id))
        assert next(watching).kind == "sandbox.paused"
        watching.cancel()
    rest = list(events.Watch(ev.WatchRequest(after=created.sequence, id=box.id, once=True)))
    kinds = [event.kind for event in rest]
    assert kinds[0] == "sandbox.paused" and kinds[-1] == "sandbox.destroyed", kinds
    assert all(one.sequence < two.sequence for one, two in zip(rest, rest[1:]))


def test_what_is_not_kept_is_said(channel):
    events = rpc.EventsStub(channel)
    found = list(events.Watch(ev.WatchRequest(after=1, once=True)))
    assert found[0].kind == "events.gone"
    with refused(Code.INVALID_ARGUMENT, "kind"):
        next(events.Watch(ev.WatchRequest(kinds=["boxes"], once=True)))


def test_the_stream_ends_when_the_daemon_leaves(channel):
    watching = rpc.EventsStub(channel).Watch(ev.WatchRequest(tail=0))
    watching.initial_metadata()
    motu("serve", "--stop")
    assert [event.kind for event in watching][-1] == "host.stopped"
