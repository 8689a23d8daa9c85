"""A host on which nothing is installed."""

import contract_pb2 as pb
import grpc
from conftest import made, refused


def test_an_environment_that_is_missing_is_pulled(stub):
    with made(stub) as box:
        assert box.says("echo here") == "here"
    # One that nobody knows is none.
    with refused(grpc.StatusCode.NOT_FOUND, "nonesuch"):
        stub.CreateSandbox(pb.CreateSandboxRequest(template="nonesuch"))
