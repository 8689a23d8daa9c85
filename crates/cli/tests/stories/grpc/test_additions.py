"""Fields beyond the contract, as bytes: the client's own messages do not know them."""

import contract_pb2 as pb
import grpc
import pytest
from conftest import made, refused

Code = grpc.StatusCode
SERVICE = "hostagent.v1.HostAgentService"


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def text(number, value):
    return varint(number << 3 | 2) + varint(len(value)) + value


def number(number, value):
    return varint(number << 3) + varint(value)


@pytest.fixture
def raw(channel):
    def as_is(message):
        return message

    def call(method, message, *fields, streams=False):
        make = channel.unary_stream if streams else channel.unary_unary
        made = make(f"/{SERVICE}/{method}", request_serializer=as_is, response_deserializer=as_is)
        return made(message.SerializeToString() + b"".join(fields))

    return call


def test_variables_directory_and_user_of_a_command(box, raw):
    fields = [
        text(100, text(1, b"WORD") + text(2, b"hi")),
        text(101, b"/tmp"),
        text(102, b"nobody"),
    ]
    words = {"sandbox_id": box.id, "cmd": "sh", "args": ["-c", "echo $WORD $PWD $(id -un)"]}
    done = pb.ExecResponse.FromString(raw("Exec", pb.ExecRequest(**words), *fields))
    assert done.stdout == b"hi /tmp nobody\n"
    ask = pb.ExecStreamRequest(**words)
    events = [
        pb.ExecStreamResponse.FromString(event)
        for event in raw("ExecStream", ask, *fields, streams=True)
    ]
    assert b"".join(event.data.stdout for event in events) == b"hi /tmp nobody\n"
    words["args"][1] = "echo $(id -un)"
    ask = pb.StartBackgroundRequest(**words)
    started = raw("StartBackground", ask, text(100, b"nobody"))
    tag = pb.StartBackgroundResponse.FromString(started).tag
    connect = box.stub.ConnectProcess(pb.ConnectProcessRequest(sandbox_id=box.id, tag=tag))
    assert b"".join(event.data.stdout for event in connect) == b"nobody\n"


def test_an_answer_says_that_time_was_over_and_that_it_was_cut(box, raw):
    late = pb.ExecRequest(sandbox_id=box.id, cmd="sleep", args=["1000"], timeout_sec=1)
    assert raw("Exec", late).endswith(number(100, 1))
    long = pb.ExecRequest(sandbox_id=box.id, cmd="head", args=["-c", "17000000", "/dev/zero"])
    assert raw("Exec", long).endswith(number(101, 1))


def test_reading_goes_on_at_a_byte(box, raw):
    started = box.stub.StartBackground(
        pb.StartBackgroundRequest(sandbox_id=box.id, cmd="printf", args=["0123456789"])
    )
    ask = pb.ConnectProcessRequest(sandbox_id=box.id, tag=started.tag)
    assert b"".join(event.data.stdout for event in box.stub.ConnectProcess(ask)) == b"0123456789"
    rest = raw("ConnectProcess", ask, number(100, 7), streams=True)
    rest = [pb.ConnectProcessResponse.FromString(event) for event in rest]
    assert b"".join(event.data.stdout for event in rest) == b"789"
    ask = pb.PtyAttachRequest(sandbox_id=box.id, tag="pty-at", cmd="printf", args=["abcdef"])
    list(box.stub.PtyAttach(ask))
    again = pb.PtyAttachRequest(sandbox_id=box.id, tag="pty-at")
    events = list(raw("PtyAttach", again, number(100, 2), streams=True))
    seen = [pb.PtyAttachResponse.FromString(event) for event in events]
    assert b"".join(event.output.data for event in seen) == b"cdef"
    assert any(event.endswith(number(100, 2)) for event in events)


def test_an_error_has_all_of_itself_in_its_trailer(box):
    import json

    import grpc

    with pytest.raises(grpc.RpcError) as caught:
        box.stub.ReadFile(pb.ReadFileRequest(sandbox_id=box.id, path="relative"))
    trailer = dict(caught.value.trailing_metadata())["motu-error-bin"]
    error = json.loads(trailer)
    assert error["kind"] == "invalid" and error["hint"] in caught.value.details()


def test_sandboxes_are_listed_in_pages(stub, raw):
    def page(*fields):
        return raw("ListSandboxes", pb.ListSandboxesRequest(), *fields)

    with made(stub), made(stub), made(stub):
        whole = stub.ListSandboxes(pb.ListSandboxesRequest()).sandboxes
        seen, cursor = [], b""
        while True:
            answer = page(number(100, 2), text(101, cursor) if cursor else b"")
            found = pb.ListSandboxesResponse.FromString(answer)
            assert 0 < len(found.sandboxes) <= 2
            seen += [one.sandbox_id for one in found.sandboxes]
            # The cursor is the last field, if there is one.
            mark = varint(100 << 3 | 2)
            if mark not in answer:
                break
            rest = answer[answer.rindex(mark) + len(mark) :]
            cursor = rest[1:] if rest[0] < 128 else rest[2:]
            assert answer.endswith(text(100, cursor))
        assert seen == [one.sandbox_id for one in whole]
    with refused(Code.INVALID_ARGUMENT, "page_items"):
        page(number(100, 1001))
    with refused(Code.INVALID_ARGUMENT, "cursor"):
        page(text(101, b"nothing"))
