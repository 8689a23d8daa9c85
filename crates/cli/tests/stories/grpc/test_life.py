"""Sandboxes: made, found, paused, destroyed; health and reflection."""

import concurrent.futures
import time
import uuid

import contract_pb2 as pb
import grpc
from conftest import made, motu, refused, until
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

Code = grpc.StatusCode
SERVICE = "hostagent.v1.HostAgentService"


def test_health_says_that_it_serves(channel):
    health = health_pb2_grpc.HealthStub(channel)
    for service in ["", SERVICE]:
        answer = health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with refused(Code.NOT_FOUND):
        health.Check(health_pb2.HealthCheckRequest(service="nobody"))


def test_reflection_has_the_contract(channel):
    reflected = ProtoReflectionDescriptorDatabase(channel)
    assert SERVICE in reflected.get_services()
    file = reflected.FindFileContainingSymbol(SERVICE)
    methods = {method.name: method for method in file.service[0].method}
    messages = {message.name: message for message in file.message_type}
    contract = pb.DESCRIPTOR.services_by_name["HostAgentService"]
    assert set(methods) == {method.name for method in contract.methods}
    for method in contract.methods:
        served = methods[method.name]
        assert served.input_type == f".{method.input_type.full_name}"
        assert served.output_type == f".{method.output_type.full_name}"
        assert served.client_streaming == method.client_streaming
        assert served.server_streaming == method.server_streaming
    # Every field of the contract has its number and type; there may be more.
    for name, message in pb.DESCRIPTOR.message_types_by_name.items():
        fields = {field.name: field for field in messages[name].field}
        for field in message.fields:
            served = fields[field.name]
            assert (served.number, served.type) == (field.number, field.type), field.full_name
        beyond = set(fields) - {field.name for field in message.fields}
        assert all(fields[name].number >= 100 for name in beyond), beyond


def test_unknown_methods_are_unimplemented(channel):
    for path in [f"/{SERVICE}/NoSuchThing", "/no.such.Service/Call"]:
        with refused(Code.UNIMPLEMENTED):
            channel.unary_unary(path)(b"")


def test_a_message_that_is_none_is_refused(channel):
    with refused(Code.INTERNAL):
        channel.unary_unary(f"/{SERVICE}/Exec")(b"\xff\xff\xff")


def test_a_sandbox_has_the_defaults_of_the_contract(stub):
    with made(stub, default_env={"GREETING": "hello"}, default_user="nobody") as box:
        listed = stub.ListSandboxes(pb.ListSandboxesRequest())
        (info,) = [one for one in listed.sandboxes if one.sandbox_id == box.id]
        assert (info.status, info.template) == ("running", "busybox")
        assert (info.vcpus, info.memory_mb, info.timeout_sec) == (1, 512, 0)
        assert 0 <= time.time() - info.created_at_unix < 60
        assert info.last_active_at_unix >= info.created_at_unix
        assert box.says("echo $GREETING; id -un") == "hello\nnobody"
        assert not listed.auto_paused_sandbox_ids


def test_an_id_is_made_when_none_is_given(stub):
    made = stub.CreateSandbox(pb.CreateSandboxRequest(vcpus=1, memory_mb=128))
    assert made.sandbox_id and made.status == "running"
    stub.DestroySandbox(pb.DestroySandboxRequest(sandbox_id=made.sandbox_id))


def test_creating_again_answers_with_the_sandbox_that_lives(stub):
    with made(stub, memory_mb=256) as box:
        box.says("echo precious > /kept; sleep 1000 & echo $! > /pid")
        again = pb.CreateSandboxRequest(sandbox_id=box.id, memory_mb=256)
        assert stub.CreateSandbox(again).status == "running"
        assert box.says("cat /kept") == "precious"
        with refused(Code.FAILED_PRECONDITION, box.id, "memory_mb"):
            stub.CreateSandbox(pb.CreateSandboxRequest(sandbox_id=box.id, memory_mb=128))
        for field, other in [("timeout_sec", 60), ("default_user", "nobody")]:
            with refused(Code.FAILED_PRECONDITION, box.id, field):
                fields = {"sandbox_id": box.id, "memory_mb": 256, field: other}
                stub.CreateSandbox(pb.CreateSandboxRequest(**fields))
        assert box.says("cat /kept") == "precious"


def test_many_who_create_the_same_get_one(stub):
    name = "cl-contended"
    ask = pb.CreateSandboxRequest(sandbox_id=name, memory_mb=128)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: stub.CreateSandbox(ask), range(8)))
    assert {answer.status for answer in answers} == {"running"}
    listed = stub.ListSandboxes(pb.ListSandboxesRequest()).sandboxes
    assert [one.sandbox_id for one in listed].count(name) == 1
    stub.DestroySandbox(pb.DestroySandboxRequest(sandbox_id=name))


def test_what_cannot_be_made_says_why(stub):
    def create(**fields):
        return stub.CreateSandbox(pb.CreateSandboxRequest(**fields))

    with refused(Code.INVALID_ARGUMENT, "sandbox id"):
        create(sandbox_id="No; rm -rf /")
    with refused(Code.INVALID_ARGUMENT, "vcpus"):
        create(vcpus=-1)
    with refused(Code.INVALID_ARGUMENT, "mem_mib is 1"):
        create(memory_mb=1)
    with refused(Code.NOT_FOUND, "no-such-thing"):
        create(template="no-such-thing")
    with refused(Code.INVALID_ARGUMENT, "UUID"):
        create(template_id="zzz")
    with refused(Code.NOT_FOUND):
        create(template_id="11111111-2222-3333-4444-555555555555")


def test_zeros_mean_the_configured_environment(stub):
    zero = "00000000-0000-0000-0000-000000000000"
    with made(stub, team_id=zero, template_id=zero) as box:
        assert box.says("echo here") == "here"


def test_destroying_again_is_fine_and_a_stranger_is_not_found(stub):
    with made(stub, memory_mb=128) as box:
        ask = pb.DestroySandboxRequest(sandbox_id=box.id)
        stub.DestroySandbox(ask)
        stub.DestroySandbox(ask)
        with refused(Code.NOT_FOUND, "destroyed"):
            box.run("true")
    for call, ask in [
        (stub.DestroySandbox, pb.DestroySandboxRequest),
        (stub.PauseSandbox, pb.PauseSandboxRequest),
        (stub.ResumeSandbox, pb.ResumeSandboxRequest),
        (stub.PingSandbox, pb.PingSandboxRequest),
        (stub.ListProcesses, pb.ListProcessesRequest),
    ]:
        with refused(Code.NOT_FOUND, "cl-nobody"):
            call(ask(sandbox_id="cl-nobody"))
        with refused(Code.INVALID_ARGUMENT, "sandbox_id is empty"):
            call(ask())


def test_pausing_keeps_memory_and_processes(stub):
    with made(stub) as box:
        # A process whose memory alone knows the number.
        box.says("mkfifo /ask /say; (n=$(head -c6 /dev/urandom | md5sum); "
                 "while read _ < /ask; do echo $n > /say; done) >/dev/null 2>&1 &")
        before = box.says("echo > /ask; cat /say")
        stub.PauseSandbox(pb.PauseSandboxRequest(sandbox_id=box.id))
        stub.PauseSandbox(pb.PauseSandboxRequest(sandbox_id=box.id))
        answer = stub.ResumeSandbox(pb.ResumeSandboxRequest(sandbox_id=box.id))
        assert (answer.sandbox_id, answer.status) == (box.id, "running")
        assert box.says("echo > /ask; cat /say") == before


def test_commands_start_otherwise_after_a_resume(stub):
    with made(stub, default_env={"KEPT": "1", "SAID": "before"}) as box:
        assert box.says("echo $KEPT $SAID; id -un") == "1 before\nroot"
        stub.PauseSandbox(pb.PauseSandboxRequest(sandbox_id=box.id))
        ask = pb.ResumeSandboxRequest(
            sandbox_id=box.id, default_user="nobody", default_env={"SAID": "after"}
        )
        stub.ResumeSandbox(ask)
        assert box.says("echo $KEPT $SAID; id -un") == "1 after\nnobody"
        # They are the sandbox's now: the next resume says nothing of them.
        stub.PauseSandbox(pb.PauseSandboxRequest(sandbox_id=box.id))
        stub.ResumeSandbox(pb.ResumeSandboxRequest(sandbox_id=box.id))
        assert box.says("echo $SAID; id -un") == "after\nnobody"
        wrong = pb.ResumeSandboxRequest(sandbox_id=box.id, default_user="no-such-user")
        with refused(Code.NOT_FOUND, "no-such-user"):
            stub.ResumeSandbox(wrong)
        assert box.says("id -un") == "nobody"


def test_what_nobody_uses_is_paused_and_goes_on_when_it_is_used(stub):
    def listed():
        return stub.ListSandboxes(pb.ListSandboxesRequest())

    with made(stub, timeout_sec=1) as box:
        box.says("sleep 1000 >/dev/null 2>&1 & echo $! > /pid")
        found = until(lambda: [one for one in [listed()] if box.id in one.auto_paused_sandbox_ids])
        (info,) = [one for one in found[0].sandboxes if one.sandbox_id == box.id]
        assert (info.status, info.timeout_sec) == ("paused", 1)
        # Told once.
        assert box.id not in listed().auto_paused_sandbox_ids
        # What ran goes on, and whoever uses the sandbox notices nothing.
        assert box.says("kill -0 $(cat /pid) && echo alive") == "alive"
        # Longer than it may be idle: a command that runs is use.
        assert box.says("sleep 3; echo done") == "done"
        until(lambda: box.id in listed().auto_paused_sandbox_ids)
        resume = pb.ResumeSandboxRequest(sandbox_id=box.id, timeout_sec=600)
        assert stub.ResumeSandbox(resume).status == "running"
        (info,) = [one for one in listed().sandboxes if one.sandbox_id == box.id]
        assert (info.status, info.timeout_sec) == ("running", 600)
        # Without a time it is not paused any more, whatever it had before.
        assert stub.ResumeSandbox(pb.ResumeSandboxRequest(sandbox_id=box.id)).status == "running"
        (info,) = [one for one in listed().sandboxes if one.sandbox_id == box.id]
        assert info.timeout_sec == 0


def test_a_sandbox_becomes_a_template(stub):
    team, one = (str(uuid.uuid4()) for _ in range(2))
    ids = {"team_id": team, "template_id": one}
    with made(stub, memory_mb=256) as box:
        box.says("echo precious > /kept")
        saved = stub.CreateSnapshot(pb.CreateSnapshotRequest(sandbox_id=box.id, **ids))
        assert saved.size_bytes > 0 and saved.name
        with refused(Code.NOT_FOUND):
            box.run("true")
    with made(stub, **ids) as box:
        assert box.says("cat /kept") == "precious"
        listed = stub.ListSandboxes(pb.ListSandboxesRequest()).sandboxes
        (info,) = [info for info in listed if info.sandbox_id == box.id]
        assert (info.team_id, info.template_id, info.memory_mb) == (team, one, 256)
        with refused(Code.FAILED_PRECONDITION, box.id):
            stub.DeleteSnapshot(pb.DeleteSnapshotRequest(**ids))
        with refused(Code.FAILED_PRECONDITION, "exists already"):
            stub.FlattenRootfs(pb.FlattenRootfsRequest(sandbox_id=box.id, **ids))
        assert box.says("cat /kept") == "precious"
        flat = pb.FlattenRootfsRequest(sandbox_id=box.id, name="flat")
        assert stub.FlattenRootfs(flat).size_bytes > 0
    stub.DeleteSnapshot(pb.DeleteSnapshotRequest(**ids))
    with refused(Code.NOT_FOUND):
        stub.DeleteSnapshot(pb.DeleteSnapshotRequest(**ids))
    with made(stub, template="flat") as box:
        assert box.says("cat /kept") == "precious"
    stub.DeleteSnapshot(pb.DeleteSnapshotRequest(name="flat"))
    with refused(Code.NOT_FOUND):
        stub.CreateSnapshot(pb.CreateSnapshotRequest(sandbox_id="cl-nobody", name="x"))


def test_memory_goes_into_a_template(stub):
    """Of virtual machines; others save their files, as the test before this one shows."""
    counts = (
        "(i=0; while true; do i=$((i+1)); echo $i > /dev/shm/m; mv /dev/shm/m /dev/shm/n; sleep 0.02;"
        " done) >/dev/null 2>&1 & until [ -s /dev/shm/n ]; do sleep 0.02; done; cat /dev/shm/n"
    )
    with made(stub, memory_mb=256) as box:
        at = int(box.says(counts))
        saved = stub.CreateSnapshot(pb.CreateSnapshotRequest(sandbox_id=box.id, name="warm"))
        assert saved.size_bytes > 0
        with refused(Code.NOT_FOUND):
            box.run("true")
    with made(stub, template="warm") as box:
        first = int(box.says("cat /dev/shm/n"))
        assert first >= at
        box.says(f"until [ $(cat /dev/shm/n) -gt {first} ]; do sleep 0.02; done")
        # An image has no memory.
        stub.FlattenRootfs(pb.FlattenRootfsRequest(sandbox_id=box.id, name="flat"))
    with made(stub, template="flat") as box:
        assert box.says("test -e /dev/shm/n || echo none") == "none"
    # One whose disks were not kept, as the command line makes them.
    name = motu("create", "busybox", "--mem-mib", "256").strip()
    motu("exec", name, "--", "sh", "-c", "echo warm > /dev/shm/w")
    motu("template", "save", name, "loose", "--memory", "--then", "destroy")
    with made(stub, template="loose") as box:
        assert box.says("cat /dev/shm/w") == "warm"
    stub.DeleteSnapshot(pb.DeleteSnapshotRequest(name="loose"))
    for name in ["warm", "flat"]:
        stub.DeleteSnapshot(pb.DeleteSnapshotRequest(name=name))


def test_what_was_used_is_told(stub):
    with made(stub) as box:
        box.says("(while true; do :; done) >/dev/null 2>&1 &")

        def points(span=""):
            ask = pb.GetSandboxMetricsRequest(sandbox_id=box.id, range=span)
            return stub.GetSandboxMetrics(ask).points

        until(lambda: any(point.cpu_pct > 20 for point in points()))
        assert all(point.mem_bytes > 0 and point.timestamp_unix > 0 for point in points("10m"))
        assert not points("24h")
        flushed = stub.FlushSandboxMetrics(pb.FlushSandboxMetricsRequest(sandbox_id=box.id))
        assert flushed.points_10m and not flushed.points_24h
        until(lambda: points("5m"))
        for span in ["1h", "6h", "12h"]:
            assert not points(span)
        with refused(Code.INVALID_ARGUMENT, "10m"):
            points("7m")
        with refused(Code.NOT_FOUND):
            stub.GetSandboxMetrics(pb.GetSandboxMetricsRequest(sandbox_id="cl-nobody"))


def test_ping_counts_as_a_use(stub, box):
    def active():
        listed = stub.ListSandboxes(pb.ListSandboxesRequest()).sandboxes
        (info,) = [one for one in listed if one.sandbox_id == box.id]
        return info.last_active_at_unix

    before = active()
    deadline = time.monotonic() + 10
    while active() == before and time.monotonic() < deadline:
        stub.PingSandbox(pb.PingSandboxRequest(sandbox_id=box.id))
    assert active() > before


def test_what_is_paused_is_not_pinged(stub, box):
    ping = pb.PingSandboxRequest(sandbox_id=box.id)
    stub.PauseSandbox(pb.PauseSandboxRequest(sandbox_id=box.id))
    with refused(Code.FAILED_PRECONDITION, "paused"):
        stub.PingSandbox(ping)
    stub.ResumeSandbox(pb.ResumeSandboxRequest(sandbox_id=box.id))
    stub.PingSandbox(ping)
    with refused(Code.NOT_FOUND):
        stub.PingSandbox(pb.PingSandboxRequest(sandbox_id="cl-nobody"))


def test_it_lives_until_it_is_destroyed(stub, box):
    import json

    (one,) = [one for one in json.loads(motu("ps", "--json"))["sandboxes"] if one["sandbox_id"] == box.id]
    assert (one["ttl_seconds"], one["expires_at"]) == (0, None), one


def test_calls_are_in_the_audit_log(stub, box):
    answer, call = stub.Exec.with_call(
        pb.ExecRequest(sandbox_id=box.id, cmd="echo", args=["recorded"])
    )
    assert answer.stdout == b"recorded\n"
    name = dict(call.initial_metadata())["motu-audit-id"]
    shown = motu("audit", "show", name)
    assert "grpc" in shown and "exec_stream" in shown, shown
