"""A daemon of another host: an address, TLS and a key."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import IMAGE

from motu import AsyncMotu, Motu, errors


@dataclass
class Service:
    place: Path
    url: str

    def motu(self, *arguments: str) -> str:
        program = [os.environ["MOTU_BINARY"], "--home", str(self.place), *arguments]
        return subprocess.run(program, check=True, capture_output=True, text=True).stdout

    def key(self, *arguments: str) -> str:
        return self.motu("key", "create", *arguments).strip()

    @property
    def ca_file(self) -> Path:
        return self.place / "tls" / "self.pem"


@pytest.fixture(scope="module")
def service(motu: Motu, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    motu.run_in_vm(IMAGE, ["true"], timeout_seconds=300)
    place = tmp_path_factory.mktemp("service")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (place / "config.toml").write_text(
        f'runtime = "container"\n[listen]\naddress = "{address}"\ncertificate = "self"\n'
    )
    (place / "environments").symlink_to(home / "environments")
    service = Service(place, f"https://{address}")
    try:
        yield service
    finally:
        service.motu("serve", "--stop")


def test_both_clients_work_with_a_key(service: Service) -> None:
    key = service.key("--project", "py")
    with Motu(url=service.url, key=key, ca_file=service.ca_file) as client:
        assert client.run_in_vm(IMAGE, ["echo", "hi"], timeout_seconds=60).stdout == "hi\n"
        box = client.create_sandbox(IMAGE, sandbox_id="box")
        assert (box.sandbox_id, box.owner) == ("py--box", "project:py")
        client.write_file("box", "/tmp/a", iter([b"in ", b"pieces"]))
        assert client.exec("box", ["cat", "/tmp/a"]).stdout == "in pieces"
        with client.exec_stream("box", ["sh", "-c", "echo live"]) as stream:
            assert stream.read() == (b"live\n", b"")
        assert service.url in repr(client)
        assert key not in repr(client)

    async def again() -> None:
        async with AsyncMotu(url=service.url, key=key, ca_file=service.ca_file) as client:
            assert [one.sandbox_id for one in (await client.list_sandboxes()).sandboxes] == ["py--box"]
            await client.destroy_sandbox("box")

    asyncio.run(again())


def test_a_wrong_key_is_an_error_of_its_own(service: Service) -> None:
    with Motu(url=service.url, key="motu_x", ca_file=service.ca_file) as client:
        with pytest.raises(errors.UnauthenticatedError):
            client.list_sandboxes()
    narrow = service.key("--scope", "read")
    with Motu(url=service.url, key=narrow, ca_file=service.ca_file) as client:
        with pytest.raises(errors.DeniedError):
            client.create_sandbox(IMAGE)


def test_a_certificate_that_nobody_signed_is_not_believed(service: Service) -> None:
    with Motu(url=service.url, key=service.key()) as client:
        with pytest.raises(errors.UnavailableError):
            client.version()


def test_what_would_show_the_key_is_refused(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: list[dict[str, Any]] = [
        {"url": "http://example.org", "key": "motu_x"},
        {"url": "https://user@example.org", "key": "motu_x"},
        {"url": "ftp://example.org", "key": "motu_x"},
        {"url": "https://example.org"},
        {"key": "motu_x"},
        {"url": "https://example.org", "key": "motu_x", "home": "/x"},
    ]
    for arguments in wrong:
        with pytest.raises(errors.InvalidError):
            Motu(**arguments)
    key = service.key()
    monkeypatch.setenv("MOTU_URL", service.url)
    monkeypatch.setenv("MOTU_KEY", key)
    with Motu(ca_file=service.ca_file) as client:
        assert client.version().api_version == "1"
