"""Callers of other hosts with a key, on the address of REST."""

import os
import pathlib

import contract_pb2 as pb
import contract_pb2_grpc as rpc
import grpc
from conftest import motu, refused

Code = grpc.StatusCode
ADDRESS = os.environ.get("MOTU_ADDRESS", "")


def channel():
    trusted = pathlib.Path(os.environ["MOTU_HOME"]) / "tls" / "self.pem"
    return grpc.secure_channel(ADDRESS, grpc.ssl_channel_credentials(trusted.read_bytes()))


def bearer(*arguments):
    key = motu("key", "create", *arguments).strip()
    return [("authorization", f"Bearer {key}")]


def test_a_key_is_a_caller_who_sees_one_project():
    acme, beta = bearer("--project", "acme"), bearer("--project", "beta")
    with channel() as opened:
        stub = rpc.HostAgentServiceStub(opened)
        ask = pb.CreateSandboxRequest(sandbox_id="box", memory_mb=128)
        made = stub.CreateSandbox(ask, metadata=acme)
        assert made.sandbox_id == "acme--box"
        # Asking again is the same sandbox, and the same id is another project's own.
        assert stub.CreateSandbox(ask, metadata=acme).sandbox_id == "acme--box"
        command = pb.ExecRequest(sandbox_id="box", cmd="echo", args=["there"])
        assert stub.Exec(command, metadata=acme).stdout == b"there\n"
        with refused(Code.NOT_FOUND):
            stub.Exec(command, metadata=beta)
        with refused(Code.NOT_FOUND):
            stub.DestroySandbox(pb.DestroySandboxRequest(sandbox_id="acme--box"), metadata=beta)
        listed = stub.ListSandboxes(pb.ListSandboxesRequest(), metadata=beta)
        assert not listed.sandboxes
        listed = stub.ListSandboxes(pb.ListSandboxesRequest(), metadata=acme)
        assert [one.sandbox_id for one in listed.sandboxes] == ["acme--box"]


def test_who_has_no_good_key_is_refused():
    with channel() as opened:
        stub = rpc.HostAgentServiceStub(opened)
        for metadata in ([], [("authorization", "Bearer motu_x")]):
            with refused(Code.UNAUTHENTICATED, "key"):
                stub.ListSandboxes(pb.ListSandboxesRequest(), metadata=metadata)
        narrow = bearer("--scope", "read")
        with refused(Code.PERMISSION_DENIED, "create_sandbox"):
            stub.CreateSandbox(pb.CreateSandboxRequest(sandbox_id="x"), metadata=narrow)


def test_a_key_may_not_end_the_daemon():
    with channel() as opened:
        stub = rpc.HostAgentServiceStub(opened)
        with refused(Code.PERMISSION_DENIED, "end the daemon"):
            stub.Terminate(pb.TerminateRequest(), metadata=bearer("--scope", "*"))
        assert motu("ps") is not None


def test_templates_of_a_project_are_its_own_and_stay_while_they_are_used():
    acme, beta = bearer("--project", "gamma"), bearer("--project", "delta")
    with channel() as opened:
        stub = rpc.HostAgentServiceStub(opened)
        stub.CreateSandbox(pb.CreateSandboxRequest(sandbox_id="source", memory_mb=128), metadata=acme)
        made = stub.CreateSnapshot(pb.CreateSnapshotRequest(sandbox_id="source", name="kept"), metadata=acme)
        assert made.size_bytes > 0
        with refused(Code.NOT_FOUND):
            stub.DeleteSnapshot(pb.DeleteSnapshotRequest(name="kept"), metadata=beta)
        copy = pb.CreateSandboxRequest(sandbox_id="copy", template="kept", memory_mb=128)
        stub.CreateSandbox(copy, metadata=acme)
        gone = pb.DeleteSnapshotRequest(name="kept")
        with refused(Code.FAILED_PRECONDITION, "used by"):
            stub.DeleteSnapshot(gone, metadata=acme)
        stub.DestroySandbox(pb.DestroySandboxRequest(sandbox_id="copy"), metadata=acme)
        stub.DeleteSnapshot(gone, metadata=acme)
        assert "kept" not in motu("template", "list") + motu("env", "list")


def test_a_stream_ends_with_its_key():
    key = motu("key", "create", "--project", "epsilon").strip()
    metadata = [("authorization", f"Bearer {key}")]
    with channel() as opened:
        stub = rpc.HostAgentServiceStub(opened)
        stub.CreateSandbox(pb.CreateSandboxRequest(sandbox_id="box", memory_mb=128), metadata=metadata)
        ask = pb.ExecStreamRequest(sandbox_id="box", cmd="sleep", args=["300"])
        stream = stub.ExecStream(ask, metadata=metadata, timeout=60)
        assert next(stream).HasField("start")
        motu("key", "revoke", key.split("_")[1])
        with refused(Code.UNAUTHENTICATED):
            next(stream)
