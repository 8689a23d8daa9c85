"""The end of the daemon: what its control plane made goes, what its user keeps stays."""

import json

from conftest import HOME, motu, pb, until


def test_terminate_destroys_what_was_made_and_ends_the_daemon(stub):
    stub.CreateSandbox(pb.CreateSandboxRequest(sandbox_id="cl-ends"))
    motu("workspace", "create", "busybox", "--id", "stays")
    stub.Terminate(pb.TerminateRequest())
    until(lambda: not (HOME / "daemon.sock").exists())
    listed = json.loads(motu("ps", "--json"))
    ids = json.dumps(listed)
    assert "cl-ends" not in ids and "stays" in ids, ids
    motu("workspace", "delete", "stays")
