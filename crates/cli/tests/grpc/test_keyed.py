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
