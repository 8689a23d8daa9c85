"""What a sandbox may reach."""

from __future__ import annotations

from dataclasses import dataclass

from . import types


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """The name of a policy, or none at all. Destinations are in the policy, never in a call."""

    policy: str | None = None

    @classmethod
    def deny_by_default(cls) -> NetworkPolicy:
        """No network."""
        return cls()

    @classmethod
    def named(cls, policy: str) -> NetworkPolicy:
        """What this policy allows; `motu policy list` shows those there are."""
        return cls(policy)


@dataclass(frozen=True, slots=True)
class NetworkInfo:
    """What a machine may reach, and what listens in it."""

    vm_id: str
    network: str
    network_enabled: bool
    ports: list[types.Port]
