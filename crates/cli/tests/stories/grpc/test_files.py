"""Files: whole, in pieces, directories."""

import os
import stat

import contract_pb2 as pb
import grpc
from conftest import HOME, refused

Code = grpc.StatusCode
TEN = os.urandom(10_000_000)


def write(box, path, content):
    box.stub.WriteFile(pb.WriteFileRequest(sandbox_id=box.id, path=path, content=content))


def read(box, path):
    return box.stub.ReadFile(pb.ReadFileRequest(sandbox_id=box.id, path=path)).content


def meta(box, path):
    where = pb.WriteFileStreamMeta(sandbox_id=box.id, path=path)
    return pb.WriteFileStreamRequest(meta=where)


def chunks(content, size=64 * 1024):
    for begin in range(0, len(content), size):
        yield pb.WriteFileStreamRequest(chunk=content[begin : begin + size])


def stream(box, path):
    return box.stub.ReadFileStream(pb.ReadFileStreamRequest(sandbox_id=box.id, path=path))


def test_a_file_comes_back_as_it_was(box):
    for content in [b"", b"text\n", bytes(range(256)), TEN]:
        write(box, "/deep/down/file", content)
        assert read(box, "/deep/down/file") == content
    assert box.says("sha256sum < /deep/down/file").split()[0]


def test_a_file_in_pieces(box):
    def pieces():
        yield meta(box, "/pieces")
        yield from chunks(TEN)

    box.stub.WriteFileStream(pieces())
    received = [message.chunk for message in stream(box, "/pieces")]
    assert b"".join(received) == TEN
    assert len(received) > 1 and max(map(len, received)) <= 4 << 20
    box.stub.WriteFileStream(iter([meta(box, "/empty")]))
    assert read(box, "/empty") == b""


def daemon_rss():
    """What the daemon has in memory, in bytes."""
    import socket
    import struct

    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(HOME / "daemon.sock"))
        size = struct.calcsize("3i")
        pid, _, _ = struct.unpack(
            "3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        )
    with open(f"/proc/{pid}/status") as status:
        (line,) = [line for line in status if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def test_large_files_pass_through_without_being_kept(box):
    before = daemon_rss()
    piece = os.urandom(1 << 20)

    def pieces():
        yield meta(box, "/large")
        for _ in range(200):
            yield pb.WriteFileStreamRequest(chunk=piece)

    box.stub.WriteFileStream(pieces())
    assert box.says("wc -c < /large") == str(200 << 20)
    assert sum(len(message.chunk) for message in stream(box, "/large")) == 200 << 20
    box.says("rm /large")
    assert daemon_rss() - before < 48 << 20


def test_half_a_file_is_no_file(box):
    write(box, "/whole", b"before")

    def broken():
        yield meta(box, "/whole")
        yield pb.WriteFileStreamRequest(chunk=b"half of ")
        raise RuntimeError("the client is gone")

    try:
        box.stub.WriteFileStream(broken())
    except grpc.RpcError:
        pass
    assert read(box, "/whole") == b"before"


def test_wrong_streams_are_told(box):
    with refused(Code.INVALID_ARGUMENT, "first message"):
        box.stub.WriteFileStream(iter([pb.WriteFileStreamRequest(chunk=b"x")]))
    with refused(Code.INVALID_ARGUMENT, "first message"):
        box.stub.WriteFileStream(iter([]))
    with refused(Code.INVALID_ARGUMENT, "one file"):
        box.stub.WriteFileStream(iter([meta(box, "/one"), meta(box, "/two")]))
    with refused(Code.INVALID_ARGUMENT, "absolute"):
        write(box, "relative", b"")


def test_what_is_missing_is_not_found(box):
    with refused(Code.NOT_FOUND):
        read(box, "/no/such/file")
    with refused(Code.NOT_FOUND):
        list(stream(box, "/no/such/file"))
    with refused(Code.NOT_FOUND):
        box.stub.ListDir(pb.ListDirRequest(sandbox_id=box.id, path="/no/such/dir"))
    with refused(Code.NOT_FOUND):
        box.stub.RemovePath(pb.RemovePathRequest(sandbox_id=box.id, path="/no/such/file"))
    with refused(Code.INVALID_ARGUMENT):
        read(box, "/etc")
    with refused(Code.NOT_FOUND, "cl-nobody"):
        box.stub.ReadFile(pb.ReadFileRequest(sandbox_id="cl-nobody", path="/etc/passwd"))


def test_too_long_for_a_message_is_told(box):
    box.says("truncate -s 70000000 /sparse")
    with refused(Code.RESOURCE_EXHAUSTED, "grpc_message_bytes", "ReadFileStream"):
        read(box, "/sparse")
    assert sum(len(message.chunk) for message in stream(box, "/sparse")) == 70_000_000
    with refused(Code.OUT_OF_RANGE):
        write(box, "/never", b"x" * 70_000_000)


def listed(box, path, depth=0):
    ask = pb.ListDirRequest(sandbox_id=box.id, path=path, depth=depth)
    return {entry.path: entry for entry in box.stub.ListDir(ask).entries}


def test_directories(box):
    made = box.stub.MakeDir(pb.MakeDirRequest(sandbox_id=box.id, path="/tree/a/b")).entry
    assert (made.name, made.path, made.type) == ("b", "/tree/a/b", "directory")
    assert stat.S_IMODE(made.mode) == 0o755 and made.permissions == "drwxr-xr-x"
    box.stub.MakeDir(pb.MakeDirRequest(sandbox_id=box.id, path="/tree/a/b"))
    write(box, "/tree/file", b"12345")
    box.says("ln -s file /tree/link; mkfifo /tree/pipe; chmod 640 /tree/file")
    found = listed(box, "/tree")
    assert {path: entry.type for path, entry in found.items()} == {
        "/tree/a": "directory",
        "/tree/file": "file",
        "/tree/link": "symlink",
        "/tree/pipe": "other",
    }
    file, link = found["/tree/file"], found["/tree/link"]
    assert (file.size, file.permissions, file.owner) == (5, "-rw-r-----", "root")
    assert file.modified_at > 1_700_000_000 and not file.HasField("symlink_target")
    assert link.symlink_target == "file"
    assert "/tree/a/b" in listed(box, "/tree", depth=2)
    box.stub.RemovePath(pb.RemovePathRequest(sandbox_id=box.id, path="/tree"))
    assert "/tree" not in listed(box, "/")
    write(box, "/blocker", b"")
    with refused(Code.FAILED_PRECONDITION):
        box.stub.MakeDir(pb.MakeDirRequest(sandbox_id=box.id, path="/blocker"))


def test_a_long_directory_has_all_its_pages(box):
    box.says("mkdir /many; cd /many; i=0; while [ $i -lt 12000 ]; do : > f$i; i=$((i+1)); done")
    assert len(listed(box, "/many")) == 12_000
    box.stub.RemovePath(pb.RemovePathRequest(sandbox_id=box.id, path="/many"))
