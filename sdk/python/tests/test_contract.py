"""The methods of the public contract: every name, parameter and default."""

from __future__ import annotations

import inspect

import pytest

import motu
from motu import AsyncMotu, Motu

#: As the contract writes them; `...` stands for further parameters that it leaves open.
CONTRACT = """
create_server(profile="workspace-full")
list_environments()
pull_environment(environment)
inspect_environment(environment)
prune_environments()
create_vm(..., vcpu_count=1, mem_mib=1024, allow_host_compat=False)
create_workspace(..., name=None, labels=None, network_policy="off", secrets=None, seed_path=None, vcpu_count=1, mem_mib=1024, allow_host_compat=False)
list_workspaces()
push_workspace_sync(workspace_id, source_path, *, dest="/workspace")
stop_workspace(workspace_id)
start_workspace(workspace_id)
list_workspace_files(workspace_id, path="/workspace", recursive=False)
read_workspace_file(workspace_id, path, *, max_bytes=65536)
write_workspace_file(workspace_id, path, *, text)
export_workspace(workspace_id, path, *, output_path)
apply_workspace_patch(workspace_id, *, patch)
export_workspace_disk(workspace_id, *, output_path)
list_workspace_disk(workspace_id, path="/workspace", recursive=False)
read_workspace_disk(workspace_id, path, *, max_bytes=65536)
diff_workspace(workspace_id)
create_snapshot(workspace_id, snapshot_name)
list_snapshots(workspace_id)
delete_snapshot(workspace_id, snapshot_name)
reset_workspace(workspace_id, *, snapshot="baseline")
start_service(workspace_id, service_name, *, command, cwd="/workspace", readiness=None, ready_timeout_seconds=30, ready_interval_ms=500, secret_env=None, published_ports=None)
list_services(workspace_id)
status_service(workspace_id, service_name)
logs_service(workspace_id, service_name, *, tail_lines=200, all=False)
stop_service(workspace_id, service_name)
open_shell(workspace_id, *, cwd="/workspace", cols=120, rows=30, secret_env=None)
read_shell(workspace_id, shell_id, *, cursor=0, max_chars=65536, plain=False, wait_for_idle_ms=None)
write_shell(workspace_id, shell_id, *, input, append_newline=True)
signal_shell(workspace_id, shell_id, *, signal_name="INT")
close_shell(workspace_id, shell_id)
start_vm(vm_id)
exec_vm(vm_id, *, command, timeout_seconds=30)
exec_workspace(workspace_id, *, command, timeout_seconds=30, secret_env=None)
stop_vm(vm_id)
delete_vm(vm_id)
delete_workspace(workspace_id)
status_vm(vm_id)
status_workspace(workspace_id)
update_workspace(workspace_id, *, name=None, clear_name=False, labels=None, clear_labels=None)
logs_workspace(workspace_id)
network_info_vm(vm_id)
reap_expired()
run_in_vm(..., vcpu_count=1, mem_mib=1024, allow_host_compat=False)
"""
LINES = CONTRACT.strip().splitlines()


@pytest.mark.parametrize("client", [Motu, AsyncMotu])
@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split("(")[0])
def test_a_method_is_as_the_contract_says(client: type[Motu] | type[AsyncMotu], line: str) -> None:
    name, _, rest = line.partition("(")
    written = rest.replace("...", "*") if "..." in rest else rest
    space: dict[str, object] = {}
    exec(f"def {name}({written}: pass", space)  # The contract's lines are signatures of Python.
    asked = inspect.signature(space[name]).parameters  # type: ignore[arg-type]
    ours = inspect.signature(getattr(client, name)).parameters
    positional = [one.name for one in asked.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
    found = [one.name for one in ours.values() if one.kind is one.POSITIONAL_OR_KEYWORD][1:]
    if "..." not in rest:
        assert found == positional
    for one in asked.values():
        assert one.name in ours, f"{name} has no {one.name}"
        assert ours[one.name].default == one.default, f"{name}: {one.name}"
    # What the contract does not name must not be needed.
    more = [one for one in ours.values() if one.name not in asked and one.name != "self" and one.kind is not one.VAR_KEYWORD]
    if "..." not in rest:
        assert all(one.default is not one.empty for one in more)


def test_the_factory_is_there() -> None:
    assert inspect.signature(motu.create_server).parameters["profile"].default == "workspace-full"


def test_both_clients_have_the_same_methods() -> None:
    public = [{name for name in dir(one) if not name.startswith("_")} for one in (Motu, AsyncMotu)]
    assert public[0] - {"close"} == public[1] - {"aclose"}
