"""Callers of other hosts: mutual TLS, and nobody else."""

import os
import pathlib

import contract_pb2 as pb
import contract_pb2_grpc as rpc
import grpc
import pytest
from conftest import OPTIONS, SOCKET, motu, refused

Code = grpc.StatusCode
CERTIFICATES = pathlib.Path(os.environ.get("MOTU_CERTIFICATES", "."))
ADDRESS = os.environ.get("MOTU_ADDRESS", "")


def pem(name):
    return (CERTIFICATES / f"{name}.pem").read_bytes()


def credentials(caller):
    if caller is None:
        return grpc.ssl_channel_credentials(root_certificates=pem("authority"))
    return grpc.ssl_channel_credentials(
        root_certificates=pem("authority"),
        private_key=pem(f"{caller}-key"),
        certificate_chain=pem(caller),
    )


def test_who_has_a_certificate_is_served_as_a_stranger_to_the_host():
    with grpc.secure_channel(ADDRESS, credentials("caller")) as channel:
        stub = rpc.HostAgentServiceStub(channel)
        stub.CreateSandbox(pb.CreateSandboxRequest(sandbox_id="cl-remote", memory_mb=128))
        done = stub.Exec(pb.ExecRequest(sandbox_id="cl-remote", cmd="echo", args=["there"]))
        assert done.stdout == b"there\n"
        assert '"owner": "remote"' in motu("ps", "--json")
        # What another made is not handed to who asks for the same.
        with grpc.insecure_channel(SOCKET, options=OPTIONS) as local:
            local = rpc.HostAgentServiceStub(local)
            with refused(Code.FAILED_PRECONDITION, "owner"):
                ask = pb.CreateSandboxRequest(sandbox_id="cl-remote", memory_mb=128)
                local.CreateSandbox(ask)
        stub.DestroySandbox(pb.DestroySandboxRequest(sandbox_id="cl-remote"))
        # The address has gRPC alone.
        with refused(Code.UNIMPLEMENTED):
            channel.unary_unary("/v1/version")(b"")


@pytest.mark.parametrize("caller", [None, "stranger"])
def test_who_has_none_is_refused(caller):
    with grpc.secure_channel(ADDRESS, credentials(caller)) as channel:
        with refused(Code.UNAVAILABLE):
            rpc.HostAgentServiceStub(channel).ListSandboxes(pb.ListSandboxesRequest(), timeout=10)


def test_plain_text_is_refused():
    with grpc.insecure_channel(ADDRESS) as channel:
        with refused(Code.UNAVAILABLE):
            rpc.HostAgentServiceStub(channel).ListSandboxes(pb.ListSandboxesRequest(), timeout=10)
