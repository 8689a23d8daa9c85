"""The service, environments, templates and sandboxes."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest
from cases.world import World, tar_of
from conftest import IMAGE

import motu as sdk
from motu import errors

# Service.


def version(w: World) -> None:
    assert w.motu.version().api_version == "1"


def doctor(w: World) -> None:
    assert w.motu.doctor(deep=False).runtimes


def openapi(w: World) -> None:
    assert w.motu.openapi()["openapi"].startswith("3.")


def backup(w: World) -> None:
    path = w.tmp / w.fresh("backup")
    assert w.motu.backup(path).output_path == str(path)
    assert path.exists()


# Environments.


def list_environments(w: World) -> None:
    assert IMAGE in [one.name for one in w.motu.list_environments().environments]


def pull_environment(w: World) -> None:
    heard: list[Any] = []
    assert w.motu.pull_environment(IMAGE, progress=heard.append).installed
    assert all(isinstance(step, sdk.types.ProgressEvent) for step in heard)


def inspect_environment(w: World) -> None:
    assert w.motu.inspect_environment(IMAGE).name == IMAGE


def tag_environment(w: World) -> None:
    assert w.motu.tag_environment(IMAGE, "mine:1").name == "mine:1"


def send_build_context(w: World) -> None:
    assert w.motu.send_build_context(tar_of("a.txt", b"built")).context_id


def build_environment(w: World) -> None:
    context = w.motu.send_build_context(tar_of("a.txt", b"built")).context_id
    text = f"FROM {IMAGE}\nCOPY a.txt /a.txt\nRUN cat /a.txt\n"
    heard: list[Any] = []
    built = w.motu.build_environment(dockerfile=text, context_id=context, name="built:1", progress=heard.append)
    assert built.name == "built:1"
    assert built.build is not None and built.build.steps == 2


def export_environment(w: World) -> None:
    with tarfile.open(fileobj=io.BytesIO(w.motu.export_environment(IMAGE))) as archive:
        assert "index.json" in archive.getnames()


def import_environment(w: World) -> None:
    archive = w.motu.export_environment(IMAGE)
    assert w.motu.import_environment(archive, name="mine:3").name == "mine:3"


def remove_environment(w: World) -> None:
    w.motu.tag_environment(IMAGE, "mine:2")
    assert w.motu.remove_environment("mine:2").removed is not None
    assert "mine:2" not in [one.name for one in w.motu.list_environments().environments]


def prune_environments(w: World) -> None:
    assert w.motu.prune_environments().freed_bytes >= 0


# Templates.


def put_template(w: World) -> None:
    name = w.fresh("put")
    heard: list[Any] = []
    made = w.motu.put_template(
        name, IMAGE, setup=["echo made > /etc/made"], env={"WHO": "me"}, mem_mib=160, progress=heard.append
    )
    assert (made.name, made.version, made.definition.mem_mib) == (name, 1, 160)
    assert any(step.stage == "step" for step in heard)
    box = w.motu.create_sandbox(template=name)
    assert (box.mem_mib, box.template.name, box.template.version) == (160, name, 1)
    told = w.motu.exec(box.sandbox_id, "cat /etc/made; echo $WHO")
    assert told.stdout == "made\nme\n"
    w.motu.destroy_sandbox(box.sandbox_id)
    assert w.motu.remove_template(name).name == name


def get_template(w: World) -> None:
    assert w.motu.get_template(w.template).definition.environment == IMAGE


def list_templates(w: World) -> None:
    template = w.template
    assert template in [one.name for one in w.motu.list_templates().templates]


def build_template(w: World) -> None:
    assert w.motu.build_template(w.template).version == 1


def remove_template(w: World) -> None:
    name = w.fresh("gone")
    w.motu.put_template(name, IMAGE)
    assert w.motu.remove_template(name).name == name
    with pytest.raises(errors.NotFoundError):
        w.motu.get_template(name)


# Sandboxes.


def create_sandbox(w: World) -> None:
    name = w.fresh("made")
    made = w.motu.create_sandbox(IMAGE, sandbox_id=name, mem_mib=256, ttl_seconds=600, env={"A": "b"})
    assert (made.sandbox_id, made.mem_mib, made.vcpu_count, made.state) == (name, 256, 1, "running")
    w.motu.destroy_sandbox(name)


def destroy_sandbox(w: World) -> None:
    name = w.motu.create_sandbox(IMAGE).sandbox_id
    assert w.motu.destroy_sandbox(name).state == "destroyed"
    assert name not in [one.sandbox_id for one in w.motu.list_sandboxes().sandboxes]


def get_sandbox(w: World) -> None:
    assert w.motu.get_sandbox(w.box).environment == IMAGE


def list_sandboxes(w: World) -> None:
    box = w.box
    assert box in [one.sandbox_id for one in w.motu.list_sandboxes(all=True).sandboxes]


def stop_sandbox(w: World) -> None:
    name = w.motu.create_sandbox(IMAGE, keep=True).sandbox_id
    assert w.motu.stop_sandbox(name).state == "stopped"
    w.motu.destroy_sandbox(name)


def start_sandbox(w: World) -> None:
    name = w.motu.create_sandbox(IMAGE, keep=True).sandbox_id
    w.motu.stop_sandbox(name)
    assert w.motu.start_sandbox(name).state == "running"
    w.motu.destroy_sandbox(name)


def pause_sandbox(w: World) -> None:
    assert w.motu.pause_sandbox(w.box).state == "paused"
    w.motu.resume_sandbox(w.box)


def resume_sandbox(w: World) -> None:
    w.motu.pause_sandbox(w.box)
    assert w.motu.resume_sandbox(w.box).state == "running"


def keepalive(w: World) -> None:
    assert w.motu.keepalive(w.box, ttl_seconds=3600).ttl_seconds == 3600


def fork_sandbox(w: World) -> None:
    """Only virtual machines can; that others say so is part of the answer."""
    try:
        copies = w.motu.fork_sandbox(w.box, count=1)
    except errors.UnsupportedError as error:
        assert error.hint
        assert w.motu.get_sandbox(w.box).runtime != "qemu"
        return
    assert copies.count == 1
    w.motu.destroy_sandbox(copies.sandboxes[0].sandbox_id)


def commit_sandbox(w: World) -> None:
    box = w.motu.create_sandbox(IMAGE, keep=True).sandbox_id
    try:
        assert w.motu.commit_sandbox(box, name="mine:4").name == "mine:4"
    finally:
        w.motu.destroy_sandbox(box)


def save_template(w: World) -> None:
    """Virtual machines are saved with their memory, others with their files."""
    box = w.motu.create_sandbox(IMAGE, keep=True).sandbox_id
    try:
        w.motu.exec(box, ["sh", "-c", "echo precious > /root/kept"])
        saved = w.motu.save_template(box, name="mine-saved", then="stop").saved
        assert saved.memory == (w.motu.get_sandbox(box).runtime == "qemu")
        assert saved.size_bytes > 0
        copy = w.motu.create_sandbox(template="mine-saved").sandbox_id
        told = w.motu.exec(copy, ["cat", "/root/kept"])
        assert told.stdout == "precious\n"
        w.motu.destroy_sandbox(copy)
        w.motu.remove_template("mine-saved")
    finally:
        w.motu.destroy_sandbox(box)


def reap_expired(w: World) -> None:
    assert w.motu.reap_expired().count >= 0


def plan(w: World) -> None:
    assert w.motu.plan(IMAGE)


def metrics(w: World) -> None:
    assert w.motu.metrics(w.box).memory_total_bytes > 0


def metrics_history(w: World) -> None:
    history = w.motu.metrics_history(w.box, range="2h")
    assert (history.sandbox_id, history.range) == (w.box, "2h")


def flush_metrics(w: World) -> None:
    flushed = w.motu.flush_metrics(w.box)
    assert len(flushed.points_10m) >= len(flushed.points_24h)
