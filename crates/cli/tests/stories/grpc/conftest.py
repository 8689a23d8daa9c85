"""A client that knows nothing of motu: generated from the contract, speaking to a real daemon."""

import contextlib
import os
import pathlib
import subprocess
import sys
import time
import uuid

import grpc
import pytest

HERE = pathlib.Path(__file__).parent
HOME = pathlib.Path(os.environ["MOTU_HOME"])
SOCKET = f"unix:{HOME / 'daemon.sock'}"
# Files of ten megabytes travel in one message; clients say themselves how long one may be.
OPTIONS = [
    ("grpc.max_receive_message_length", 128 << 20),
    ("grpc.max_send_message_length", 128 << 20),
]


def compile_proto(place: pathlib.Path) -> None:
    place.mkdir(exist_ok=True)
    arguments = ["-I", str(HERE), f"--python_out={place}", f"--grpc_python_out={place}"]
    command = [sys.executable, "-m", "grpc_tools.protoc", *arguments, "contract.proto"]
    subprocess.run(command, check=True)
    sys.path.insert(0, str(place))


compile_proto(pathlib.Path(os.environ["TMPDIR"]) / "generated")
import contract_pb2 as pb  # noqa: E402
import contract_pb2_grpc as rpc  # noqa: E402


def motu(*words: str) -> str:
    """The command line, beside the client."""
    done = subprocess.run([os.environ["MOTU_BINARY"], *words], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@contextlib.contextmanager
def refused(code: grpc.StatusCode, *words: str):
    """The call must fail with this code, in these words."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    error = caught.value
    assert error.code() == code, f"{error.code()}: {error.details()}"
    for word in words:
        assert word in error.details(), error.details()


def until(found, seconds: float = 30):
    """What is found, as soon as it is true."""
    deadline = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)
    return answer


class Box:
    """One sandbox, and short words for what is asked of it."""

    def __init__(self, stub, sandbox_id: str):
        self.stub, self.id = stub, sandbox_id

    def run(self, *words: str, **fields):
        return self.stub.Exec(
            pb.ExecRequest(sandbox_id=self.id, cmd=words[0], args=words[1:], **fields)
        )

    def sh(self, script: str, **fields):
        return self.run("sh", "-c", script, **fields)

    def says(self, script: str) -> str:
        answer = self.sh(script)
        assert answer.exit_code == 0, answer
        return answer.stdout.decode().strip()


@pytest.fixture(scope="session")
def channel():
    motu("ps")
    with grpc.insecure_channel(SOCKET, options=OPTIONS) as channel:
        yield channel


@pytest.fixture(scope="session")
def stub(channel):
    return rpc.HostAgentServiceStub(channel)


@pytest.fixture(scope="session")
def box(stub):
    """A sandbox that the tests of one session share."""
    with made(stub) as box:
        yield box


@contextlib.contextmanager
def made(stub, **fields):
    name = f"cl-{uuid.uuid4().hex[:20]}"
    stub.CreateSandbox(pb.CreateSandboxRequest(sandbox_id=name, **fields))
    try:
        yield Box(stub, name)
    finally:
        stub.DestroySandbox(pb.DestroySandboxRequest(sandbox_id=name))
