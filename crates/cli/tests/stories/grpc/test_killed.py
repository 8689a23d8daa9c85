"""The daemon is killed under load: streams go on at their byte, with nothing lost and nothing twice."""

import os
import signal
import threading

import contract_pb2 as pb
import contract_pb2_grpc as rpc
import grpc
from conftest import HOME, OPTIONS, SOCKET, made, motu, until
from test_additions import SERVICE, number

BLOWS = 4
# Lines of eight bytes: the whole stream is known.
LINES = 60_000
COUNTS = f"i=0; while [ $i -lt {LINES} ]; do printf '%07d\\n' $i; i=$((i+1)); done"
WHOLE = b"".join(b"%07d\n" % line for line in range(LINES))


def daemon() -> int:
    """The process that holds the daemon's lock."""
    inode = os.stat(HOME / "daemon.lock").st_ino
    for line in open("/proc/locks"):
        words = line.split()
        if words[5].endswith(f":{inode}"):
            return int(words[4])
    return 0


def kill() -> None:
    """A blow to a daemon that is there; the next one is started by the command line."""
    os.kill(until(daemon), signal.SIGKILL)
    motu("ps")


class Follower(threading.Thread):
    """Reads a stream from where it is until its end, however often it is cut."""

    def __init__(self, method: str, ask, offset: int, piece):
        super().__init__()
        self.method, self.ask, self.offset, self.piece = method, ask, offset, piece
        self.seen, self.cuts, self.ended, self.failure = b"", 0, False, None

    def run(self):
        try:
            while not self.ended:
                self.follow()
        except Exception as failure:  # told by the test itself
            self.failure = failure

    def follow(self):
        def as_is(message):
            return message

        with grpc.insecure_channel(SOCKET, options=OPTIONS) as channel:
            path = f"/{SERVICE}/{self.method}"
            call = channel.unary_stream(path, request_serializer=as_is, response_deserializer=as_is)
            request = self.ask.SerializeToString() + number(self.offset, len(self.seen))
            try:
                for event in call(request, timeout=120, wait_for_ready=True):
                    data, ended = self.piece(event)
                    self.seen += data
                    self.ended |= ended
            except grpc.RpcError as error:
                assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED), error
                self.cuts += 1


def of_process(event):
    message = pb.ConnectProcessResponse.FromString(event)
    return message.data.stdout, message.HasField("end")


def of_terminal(event):
    message = pb.PtyAttachResponse.FromString(event)
    return message.output.data, message.HasField("exited")


def callers(box_id: str, stop: threading.Event) -> list[threading.Thread]:
    """Load: commands without a pause, each of which is answered well or not at all."""

    def call():
        while not stop.is_set():
            with grpc.insecure_channel(SOCKET, options=OPTIONS) as channel:
                stub = rpc.HostAgentServiceStub(channel)
                ask = pb.ExecRequest(sandbox_id=box_id, cmd="echo", args=["whole"])
                try:
                    answer = stub.Exec(ask, timeout=60, wait_for_ready=True)
                    assert answer.stdout == b"whole\n"
                except grpc.RpcError:
                    pass

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    return threads


def test_streams_go_on_at_their_byte(stub):
    with made(stub) as box:
        start = pb.StartBackgroundRequest(sandbox_id=box.id, cmd="sh", args=["-c", COUNTS])
        tag = stub.StartBackground(start).tag
        process = pb.ConnectProcessRequest(sandbox_id=box.id, tag=tag)
        readers = [Follower("ConnectProcess", process, 100, of_process) for _ in range(3)]
        stop = threading.Event()
        load = callers(box.id, stop)
        for reader in readers:
            reader.start()
        for _ in range(BLOWS):
            behind = max(len(reader.seen) for reader in readers)
            until(lambda: max(len(r.seen) for r in readers) > behind or all(r.ended for r in readers))
            kill()
        for reader in readers:
            reader.join(120)
        stop.set()
        for thread in load:
            thread.join(120)
        for reader in readers:
            assert reader.failure is None, reader.failure
            assert reader.ended and reader.seen == WHOLE, len(reader.seen)
        # At least one blow hit a stream that was open.
        assert max(reader.cuts for reader in readers) > 0
        assert box.says("echo alive") == "alive"


def test_a_terminal_goes_on_at_its_byte(stub):
    with made(stub) as box:
        script = "stty -onlcr; read go; " + COUNTS.replace(str(LINES), "3000")
        ask = pb.PtyAttachRequest(sandbox_id=box.id, tag="kept", cmd="sh", args=["-c", script])
        opened = stub.PtyAttach(ask)
        next(opened)
        opened.cancel()
        again = pb.PtyAttachRequest(sandbox_id=box.id, tag="kept")
        reader = Follower("PtyAttach", again, 100, of_terminal)
        reader.start()
        kill()
        send = pb.PtySendInputRequest(sandbox_id=box.id, tag="kept", data=b"go\n")
        with grpc.insecure_channel(SOCKET, options=OPTIONS) as channel:
            rpc.HostAgentServiceStub(channel).PtySendInput(send, wait_for_ready=True)
        until(lambda: reader.seen.count(b"\n") > 10)
        kill()
        reader.join(120)
        assert reader.failure is None, reader.failure
        lines = reader.seen.split(b"\n")
        first = lines.index(b"0000000")
        assert lines[first:first + 3000] == [b"%07d" % line for line in range(3000)]
