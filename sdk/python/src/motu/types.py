# Written by generate.py; change that, or what it reads.
"""The words of the API."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from ._fields import Fields

#: What a caller may ask for.
Accel = Literal["auto", "kvm", "tcg"]

#: What becomes of a sandbox that an environment was made of.
AfterCommit = Literal["start", "stop", "destroy"]

#: The name of one call in the audit log: `run_`, the time in milliseconds, a counter and randomness. Names of
#: one daemon sort by time.
AuditId = str

CallNetworkMode = Literal["none", "bridge"]

#: How the output of a terminal is sent.
CapsuleEncoding = Literal["binary", "base64"]

#: How far back the numbers of capsules are shown.
CapsuleRange = Literal["5m", "1h", "6h", "24h", "30d"]

#: Where a capsule is in its life, in the words of host agents.
CapsuleStatus = Literal["starting", "running", "paused", "hibernated", "error", "stopping", "stopped"]

ChangeKind = Literal["created", "modified", "removed", "renamed", "attributes", "lost"]

Channel = Literal["stdout", "stderr"]

#: How sure the answer is.
Confidence = Literal["low", "medium", "high", "certain"]

#: How one path differs.
DiffStatus = Literal["added", "modified", "deleted", "type_changed", "mode_changed"]

#: Why a request has ended.
End = Literal["command_ended", "waits_for_input", "quiet", "matched", "timed_out", "session_ended", "cancelled"]

#: What went wrong, for a program to decide on.
ErrorKind = Literal["invalid", "unauthenticated", "denied", "not_found", "conflict", "limit", "timeout", "unavailable", "unsupported", "transport", "cleanup", "internal"]

#: How `command` is understood.
ExecMode = Literal["argv", "shell"]

#: Six ways to fail, which need six different reactions.
FailureClass = Literal["policy_denial", "validation_failure", "timeout", "guest_command_failure", "transport_failure", "cleanup_failure"]

FileType = Literal["file", "directory", "symlink", "other"]

#: An absolute path inside a sandbox, checked for shape.
GuestPath = str

#: How one check of `motu doctor` came out.
Health = Literal["ok", "degraded", "failed"]

#: The wall between a sandbox and its host, weakest first.
Isolation = Literal["none", "container", "gvisor", "vm"]

#: The public part of a key, by which it is found.
KeyId = str

#: How far back is looked.
MetricsRange = Literal["5m", "10m", "1h", "2h", "6h", "12h", "24h"]

#: What a workspace may reach, and who may reach it.
NetworkPolicy = Literal["off", "egress", "egress+published-ports"]

#: Why a program was not started at all.
NotStarted = Literal["no_such_program", "not_executable", "no_such_directory"]

#: What happens to a sandbox that nobody has used for its `idle_seconds`. A command, a transfer or a connection
#: that goes on counts as use; what runs in the background does not.
OnIdle = Literal["destroy", "pause"]

PausedBy = Literal["caller", "idle", "shortage"]

#: Whose prompt it is.
Prompt = Literal["shell", "python", "pdb", "ipython", "node", "ruby", "psql", "mysql", "sqlite", "redis", "gdb", "lldb", "lua", "r", "julia", "php", "perl", "ghci", "scala", "java", "erlang", "elixir", "mongo", "bc", "other", "none", "unknown"]

#: When a service that ended is started again.
Restart = Literal["never", "on_failure", "always"]

Retention = Literal["destroy", "stop", "cold", "snapshot"]

#: The name of one sandbox: `sb-` and twelve random characters, or a name the caller chose. It is safe as a file
#: name, a hostname and a cgroup name.
SandboxId = str

#: How a screen is shown.
ScreenFormat = Literal["text", "ansi", "html", "svg", "png"]

#: Where a service is in its life.
ServiceState = Literal["starting", "running", "stopped", "exited", "failed"]

#: A signal, written as its name (`TERM`, `SIGTERM`) or as a number.
Signal = str

#: Whether an entry is about a whole call, or about one end of a live session.
Stage = Literal["whole", "begin", "end"]

#: Where a sandbox is in its life.
State = Literal["creating", "running", "paused", "stopped", "failed", "destroying", "destroyed"]

#: What input is likely needed next.
Status = Literal["running", "ready", "repl", "password", "confirm", "editor", "pager", "unknown", "eof", "terminated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedLimit(Fields):
    """One limit as it really applies to one sandbox."""
    #: What enforces it (`cgroup v1 memory`), or why nothing does.
    by: str
    enforced: bool
    #: A name from the table of limits.
    name: str
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCall(Fields):
    """One call, as the gate tells it to the log."""
    caller: AuditCaller
    #: `allowed` or `denied` by the gate; `none` where it failed before the gate decided.
    decision: str
    #: Nanoseconds, as text: they may be more than JSON numbers hold.
    duration_ns: str
    effect: str
    facts: Facts
    id: AuditId
    #: `ok`, the kind of the error, `open` at the beginning of a session, or `abandoned` when the caller left
    #: before the answer.
    outcome: str
    #: What a caller needs to be granted for it.
    permission: str
    #: The hash of the policy that was applied, where there was one.
    policy: str | None = None
    #: The keyed hash (HMAC-SHA-256) of the request's canonical JSON.
    request: str | None = None
    sandbox_id: SandboxId | None = None
    stage: Stage
    #: When the call began: RFC 3339 in UTC with nanoseconds.
    time: str
    verb: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCaller(Fields):
    """Who called, through which face."""
    #: `socket` or `http`.
    face: str
    #: Counts the requests of one daemon.
    request: int
    #: `uid:` and a user of the host, `key:`, the id of a key, `@` and its project, `remote`, or `address:` and
    #: from where a wrong key came.
    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry(Fields):
    """A record of the log, as it is stored: see docs/audit.md."""
    caller: AuditCaller
    #: `allowed` or `denied` by the gate; `none` where it failed before the gate decided.
    decision: str
    #: Nanoseconds, as text: they may be more than JSON numbers hold.
    duration_ns: str
    effect: str
    facts: Facts
    hash: str
    id: AuditId
    #: `ok`, the kind of the error, `open` at the beginning of a session, or `abandoned` when the caller left
    #: before the answer.
    outcome: str
    #: What a caller needs to be granted for it.
    permission: str
    #: The hash of the policy that was applied, where there was one.
    policy: str | None = None
    #: The hash of the record before.
    prev: str
    #: The keyed hash (HMAC-SHA-256) of the request's canonical JSON.
    request: str | None = None
    sandbox_id: SandboxId | None = None
    seq: int
    stage: Stage
    #: When the call began: RFC 3339 in UTC with nanoseconds.
    time: str
    type: str
    v: int
    verb: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditKey(Fields):
    """The public key of the log."""
    #: `sha256:` and the SHA-256 of the 32 bytes of the key.
    fingerprint: str
    #: Ed25519, 64 hexadecimal digits.
    public_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditList(Fields):
    """Entries, oldest first."""
    #: There are older ones: ask with this as `before_seq`.
    before_seq: int | None = None
    count: int
    entries: list[AuditEntry]
    #: The same as other lists say it: ask with this as `cursor`.
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditProblem(Fields):
    """What is wrong at one place of the log."""
    #: The line in it, from 1 on.
    line: int
    message: str
    #: The file, or empty where it is about the whole.
    segment: str
    #: The number of the entry, where it can be read.
    seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerified(Fields):
    """What a verification found."""
    #: Calls among the records.
    calls: int
    checkpoints: int
    first_seq: int
    #: The hash of the last checkpoint: keep it, and `--expect` it later.
    head: str
    last_seq: int
    ok: bool
    #: At most 100.
    problems: list[AuditProblem]
    public_key: str
    records: int
    #: Entries until this number were removed by retention, and a signed note says so.
    removed_through: int
    segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackUp(Fields):
    """Where everything that is kept is copied to."""
    #: A directory on the host that does not exist yet, or is empty.
    output_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Background(Fields):
    """A process that runs on after the call that started it."""
    pid: int
    tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup(Fields):
    """What a backup holds."""
    output_path: str
    #: The workspaces and kept sandboxes that are in it.
    sandbox_ids: list[SandboxId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds(Fields):
    """What a key may ask for beside what its project and this host allow."""
    #: How large one machine may be; as large as the host allows where it says nothing.
    most: Size | None = None
    #: The only policies that its sandboxes, calls and builds may have; any when empty. No network is always
    #: allowed.
    policies: list[str] = field(default_factory=lambda: [])


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext(Fields):
    """Files that wait for a build. They are gone after it, or after an hour."""
    bytes: int
    context_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport(Fields):
    """What a build did."""
    #: Those whose result was there already.
    cached: int
    duration_ms: int
    #: Steps of all stages that were needed.
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest(Fields):
    """What is built: the instructions of a Dockerfile, or an environment and commands to run in it."""
    build_args: dict[str, str] = field(default_factory=lambda: {})
    #: The files that `COPY` and `ADD` take, as `send_build_context` answered.
    context_id: str | None = None
    #: What it may write to its disk; default 10240.
    disk_mib: int | None = None
    #: The text of a Dockerfile.
    dockerfile: str | None = None
    #: What the Dockerfile is called in messages.
    dockerfile_name: str | None = None
    #: Instead of a Dockerfile: the environment to begin with.
    from_: str | None = field(default=None, metadata={"wire": "from"})
    #: Memory it may use; default 1024.
    mem_mib: int | None = None
    #: What the result is called: a word, such as `mine:1`. It may mean something else before. A name is made of
    #: the digest when missing.
    name: str | None = None
    #: Run every step again.
    no_cache: bool = False
    #: The policy of the network that `RUN` has; none when missing.
    policy: str | None = None
    #: With `from`: commands for its shell, one step each.
    run: list[str] = field(default_factory=lambda: [])
    #: What makes the machines; `container` when missing.
    runtime: str | None = None
    #: Values for `RUN --mount=type=secret`, by id. They are in no layer and no output; keys of the cache depend
    #: on them by a hash that nobody can repeat without a key of the host.
    secrets: dict[str, str] = field(default_factory=lambda: {})
    #: The stage to build; the last one when missing.
    target: str | None = None
    #: How long one step may run.
    timeout_seconds: int | None = None
    #: CPUs it may use; default 1.
    vcpu_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBounds(Fields):
    """What a call may be."""
    all_files_bytes: int
    file_bytes: int
    #: Files that a call brings along.
    files: int
    #: Environments that a call may name itself.
    images: list[str]
    #: Environments by language.
    languages: dict[str, str]
    max_disk_mib: int
    max_mem_mib: int
    #: Of standard output and of standard error, each.
    max_output_bytes: int
    #: The most that a call may ask for.
    max_timeout_seconds: int
    max_ttl_seconds: int
    max_vcpu_count: int
    #: The weakest isolation that will do.
    min_isolation: Isolation
    output_file_bytes: int
    #: Files that a call gives back.
    output_files: int
    #: What may happen to the state: of `destroy`, `stop`, `cold`, `snapshot`.
    retention: list[str]
    #: Secrets that a call may refer to.
    secrets: list[str]
    #: Of a call that says nothing.
    timeout_seconds: int
    #: How long a state that is kept stays, of a call that says nothing.
    ttl_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCheck(Fields):
    """One thing that was looked at."""
    allowed: bool
    check: str
    class_: FailureClass | None = field(default=None, metadata={"wire": "class"})
    hint: str | None = None
    message: str | None = None
    #: The hint as data, as in an error.
    next: list[Next] = field(default_factory=lambda: [])
    #: The rule of the policy, or the limit, that says so.
    rule: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDestination(Fields):
    host: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFile(Fields):
    """A file that a call brings along."""
    content: str | None = None
    #: `utf-8` (the default) or `base64`.
    encoding: str | None = None
    #: Its owner may run it.
    executable: bool = False
    #: In the machine, below `/work`, `/workspace` or `/tmp`; without a `/` at its beginning, below `/work`.
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits(Fields):
    """Sizes of the machine; within what the policy allows."""
    #: What it may write to its disk; default 10240.
    disk_mib: int | None = None
    #: Memory it may use; default 1024.
    mem_mib: int | None = None
    #: CPUs it may use; default 1.
    vcpu_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallNetwork(Fields):
    """What a call may reach."""
    #: Only these, of what the policy allows. Empty: all that it allows.
    allow: list[CallDestination] = field(default_factory=lambda: [])
    mode: CallNetworkMode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan(Fields):
    """What would become of a call. Nothing was started for it."""
    #: It would run.
    allowed: bool
    #: Everything that was looked at, in order.
    checks: list[CallCheck]
    #: Each destination that is asked for.
    destinations: list[CheckedDestination]
    #: What it would run in; missing when the request itself is wrong.
    environment: str | None = None
    isolation: Isolation | None = None
    max_output_bytes: int | None = None
    policy: PolicyRef | None = None
    retention: Retention | None = None
    runtime: str | None = None
    timeout_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest(Fields):
    """What a model may ask for. Unknown fields are refused, and everything is bounded by a policy."""
    #: The program and its arguments. It runs in `/work`.
    command: list[str]
    files: list[CallFile] = field(default_factory=lambda: [])
    #: Files of the machine that come back with the answer.
    files_out: list[str] = field(default_factory=lambda: [])
    #: One of the policy's environments, such as `debian:12`.
    image: str | None = None
    #: One of the policy's languages, such as `python`. This or `image`.
    language: str | None = None
    limits: CallLimits | None = None
    #: Of standard output and of standard error, each.
    max_output_bytes: int | None = None
    network: CallNetwork | None = None
    #: The policy that applies; `none` when missing.
    policy: str | None = None
    #: Variables of the command by the names of secrets: `{"KEY": {"ref": "openai-api-key"}}`.
    secrets: dict[str, SecretRef] = field(default_factory=lambda: {})
    state: Any
    timeout_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult(Fields):
    """What came of a call whose command ran."""
    audit_id: str
    duration_ms: int
    #: Missing when the command was ended.
    exit_code: int | None = None
    #: When the state that is kept goes.
    expires_at: datetime | None = None
    failure: Failure | None = None
    files_out: list[OutputFile]
    isolation: Isolation
    policy: PolicyRef
    retention: Retention
    runtime: str
    sandbox_id: SandboxId
    #: The name of the snapshot, where one was asked for.
    snapshot: str | None = None
    stderr: str
    stdout: str
    timed_out: bool
    #: Some of the output is left out.
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CallState(Fields):
    """Where a call's state comes from, and what becomes of it."""
    from_: SandboxId | None = field(default=None, metadata={"wire": "from"})
    retention: Retention
    #: How long what is kept stays.
    ttl_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capsule(Fields):
    created_at: datetime
    #: What it may write to its disk.
    disk_size_mb: int | None = None
    id: SandboxId
    isolation: str
    last_active_at: datetime
    last_updated: datetime
    memory_mb: int
    #: Labels of the caller's own, `runtime` and `isolation`.
    metadata: dict[str, str]
    #: What makes its machine, and what that isolates by.
    runtime: str
    started_at: datetime
    status: CapsuleStatus
    template: str
    timeout_sec: int
    vcpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleCommand(Fields):
    args: list[str] = field(default_factory=lambda: [])
    background: bool = False
    cmd: str
    cwd: str | None = None
    envs: dict[str, str] = field(default_factory=lambda: {})
    #: To find it again by, in the background; `proc-` and eight digits when missing.
    tag: str | None = None
    #: A command in the foreground is killed after so long, which is an error; default 30.
    timeout_sec: int | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleDay(Fields):
    """One day, in UTC."""
    cpu_minutes: float
    date: str
    ram_mb_minutes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleEntry(Fields):
    group: str
    mode: int
    #: Seconds since 1970.
    modified_at: int
    name: str
    owner: str
    path: str
    permissions: str
    size: int
    symlink_target: str | None = None
    type: FileType


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsulePath(Fields):
    """A path in a capsule, and how deep to look."""
    depth: int | None = None
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleResult(Fields):
    cmd: str
    duration_ms: int
    #: `base64` when one of the two is no text.
    encoding: str
    exit_code: int
    sandbox_id: SandboxId
    stderr: str
    stdout: str
    timed_out: bool
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleSnapshotted(Fields):
    """A capsule that was saved, and the template it was saved as."""
    created_at: datetime
    #: What it may write to its disk.
    disk_size_mb: int | None = None
    id: SandboxId
    isolation: str
    last_active_at: datetime
    last_updated: datetime
    memory_mb: int
    #: Labels of the caller's own, `runtime` and `isolation`.
    metadata: dict[str, str]
    name: str
    platform: bool
    protected: bool
    #: What makes its machine, and what that isolates by.
    runtime: str
    size_bytes: int | None = None
    started_at: datetime
    status: CapsuleStatus
    template: str
    timeout_sec: int
    type: str
    vcpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleStarted(Fields):
    cmd: str
    pid: int
    sandbox_id: SandboxId
    tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleStats(Fields):
    current: CapsulesNow
    peaks: CapsulesPeaks
    range: CapsuleRange
    series: CapsulesSeries


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleTerminal(Fields):
    """A program on a terminal."""
    args: list[str] = field(default_factory=lambda: [])
    #: A shell when missing.
    cmd: str | None = None
    #: Default 80.
    cols: int | None = None
    cwd: str | None = None
    encoding: CapsuleEncoding | None = None
    envs: dict[str, str] = field(default_factory=lambda: {})
    #: Default 24.
    rows: int | None = None
    #: To find it again by; `pty-` and eight digits when missing.
    tag: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleUsage(Fields):
    from_: str = field(metadata={"wire": "from"})
    points: list[CapsuleDay]
    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsulesNow(Fields):
    """Capsules that run, and what is set aside for them."""
    memory_mb_reserved: int
    running_count: int
    vcpus_reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsulesPeaks(Fields):
    """The most of the last 30 days."""
    memory_mb: int
    running_count: int
    vcpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsulesSeries(Fields):
    """One list for each figure; those of one time have the same place."""
    labels: list[str]
    memory_mb: list[int]
    running: list[int]
    vcpus: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeMode(Fields):
    #: Octal, such as `0644`.
    mode: str
    #: Absolute, inside the sandbox.
    path: GuestPath | None = None
    #: Instead of `path`, when it is not UTF-8.
    path_base64: str | None = None
    #: Name or number of the user that it is done as, who may do no more than that; root of the sandbox when
    #: missing.
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Fields):
    """One check: what was looked at, what was found, and what would help."""
    detail: str
    fix: str | None = None
    health: Health
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPolicy(Fields):
    """The text of a policy that is not in force."""
    #: TOML.
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedDestination(Fields):
    """What the policy says of a destination."""
    allowed: bool
    host: str
    message: str
    port: int
    #: The rule that opens it.
    rule: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLog(Fields):
    """A page of history, oldest first."""
    count: int
    entries: list[CommandRecord]
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRecord(Fields):
    """One command of a workspace's history. Output is cut, and secrets are redacted."""
    #: The state that was saved before it, for `undo`.
    checkpoint: str | None = None
    command: list[str]
    duration_ms: int
    #: Missing while it runs, and when its end was never seen.
    exit_code: int | None = None
    #: Counts from 1 since the creation or the last reset.
    sequence: int
    started_at: datetime
    #: `running`, `exited`, `timed_out`, `cancelled`, `lost`; `background` for one that nobody waited for.
    status: str
    stderr: str
    stdout: str
    truncated: bool
    workdir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSandbox(Fields):
    """How an environment is made of a sandbox."""
    #: What the environment will be called. One of that name that is there means this afterwards.
    name: str
    #: What becomes of the sandbox.
    then: AfterCommit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigureTerminal(Fields):
    """Changes what is known of a session. What is missing stays; an empty text takes it away."""
    description: str | None = None
    prompt_regex: str | None = None
    quiescence_ms: int | None = None
    size: TtySize | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateKey(Fields):
    """What a new key is to be."""
    #: What the machines made with it may be.
    bounds: Bounds | None = None
    #: Calls that it may make in a minute; 0 (the default) is any number.
    calls_per_minute: int | None = None
    #: How long it is good for; until it is revoked when missing.
    expires_seconds: int | None = None
    #: For people: what it is for.
    name: str | None = None
    #: Whose things it sees and makes; `default` when missing.
    project: str | None = None
    #: What it may do: `*`, `read`, `metrics`, `sandboxes:*`, `sandboxes:fork_sandbox`; `*` when empty.
    scopes: list[str] = field(default_factory=lambda: [])


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSandbox(Fields):
    """What a caller asks for. Everything but the environment has a default."""
    #: What a virtual machine's processor runs on.
    accel: Accel | None = None
    #: Run on the host, with no isolation, if no runtime works.
    allow_host_compat: bool = False
    #: What it may write to its disk; default 10240.
    disk_mib: int | None = None
    #: Environment variables of every command.
    env: dict[str, str] = field(default_factory=lambda: {})
    #: The environment to start from, such as `debian:12`. This or `template`.
    environment: str | None = None
    idle_seconds: int | None = None
    #: Megabytes in a second, read and written each; 0: no limit.
    io_mbps: int | None = None
    #: Reads in a second, and writes; 0: no limit.
    iops: int | None = None
    isolation: Isolation | None = None
    #: Keep the disks when the machine ends, so that the sandbox can be stopped and started.
    keep: bool = False
    #: Labels of the caller's own. They are shown with the sandbox and change nothing else.
    labels: dict[str, str] = field(default_factory=lambda: {})
    #: Memory it may use; default 1024.
    mem_mib: int | None = None
    #: Outgoing network: the policy `public`, unless `policy` names another.
    network: bool = False
    nofile: int | None = None
    #: What happens when nobody has used it for `idle_seconds`.
    on_idle: OnIdle | None = None
    pids_max: int | None = None
    #: The policy of its network, which it then has.
    policy: str | None = None
    #: `auto` (the default) or a runtime's name.
    runtime: str | None = None
    sandbox_id: SandboxId | None = None
    #: Variables that hold placeholders of secrets that are bound to hosts: `{"KEY": {"ref": "openai-api-key"}}`.
    secret_refs: dict[str, SecretRef] = field(default_factory=lambda: {})
    #: The template to start from. What the request says itself wins over what the template says.
    template: str | None = None
    #: How long it lives; 0: until it is destroyed.
    ttl_seconds: int | None = None
    #: The user commands run as; the environment's own when missing.
    user: str | None = None
    #: CPUs it may use; default 1.
    vcpu_count: int | None = None
    #: The working directory of commands; the environment's own when missing.
    workdir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateWorkspace(Fields):
    """What a caller asks for. Everything but the environment has a default."""
    accel: Accel | None = None
    #: Work on the host itself, with no isolation, if no runtime works.
    allow_host_compat: bool = False
    #: Save `/workspace` before each command, for `undo`; a command may say otherwise.
    checkpoint: bool = False
    #: What it may write to its disk; default 10240.
    disk_mib: int | None = None
    #: The environment to start from. This or `template`.
    environment: str | None = None
    #: Megabytes in a second, read and written each; 0: no limit.
    io_mbps: int | None = None
    #: Reads in a second, and writes; 0: no limit.
    iops: int | None = None
    isolation: Isolation | None = None
    labels: dict[str, str] = field(default_factory=lambda: {})
    #: Memory it may use; default 1024.
    mem_mib: int | None = None
    name: str | None = None
    network_policy: NetworkPolicy | None = None
    #: The policy of its network; `public` when missing and there is one.
    policy: str | None = None
    runtime: str | None = None
    #: Secrets by name: `{"KEY": {"ref": "openai-api-key"}}`. Of one that is bound to hosts the variable `KEY`
    #: holds a placeholder; any other becomes a secret of the workspace, named `KEY`.
    secret_refs: dict[str, SecretRef] = field(default_factory=lambda: {})
    secrets: list[SecretSource] = field(default_factory=lambda: [])
    #: A directory or a .tar/.tar.gz/.tgz archive on the daemon's host.
    seed_path: str | None = None
    #: The template to start from. What the request says itself wins over what the template says.
    template: str | None = None
    #: Delete the workspace after this; 0 (the default): never.
    ttl_seconds: int | None = None
    #: CPUs it may use; default 1.
    vcpu_count: int | None = None
    workspace_id: SandboxId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffEntry(Fields):
    #: Its text is not in the patch because it is not text.
    binary: bool
    mode_after: str | None = None
    #: Permission bits, in octal.
    mode_before: str | None = None
    #: Its text is not in the patch because the budget was used up.
    omitted: bool
    path: str
    size_after: int | None = None
    size_before: int | None = None
    status: DiffStatus
    type: FileType


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffReport(Fields):
    """What changed since the baseline, or between two snapshots."""
    added: int
    changed: bool
    deleted: int
    entries: list[DiffEntry]
    from_: str = field(metadata={"wire": "from"})
    mode_changed: int
    modified: int
    #: One unified patch of all text that fits the budget.
    patch: str
    to: str
    #: Something was left out of `entries` or `patch`.
    truncated: bool
    type_changed: int
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskExported(Fields):
    """The root of a stopped workspace as a file system in a file."""
    bytes_written: int
    #: `ext4`.
    disk_format: str
    output_path: str
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor(Fields):
    """The whole answer of `motu doctor`."""
    #: What `auto` would choose, if anything.
    auto: str | None = None
    healthy: bool
    home: str
    host: list[Check]
    link_version: int
    privilege: str
    runtimes: list[RuntimeReport]
    store_version: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit(Fields):
    """One exact replacement in one file."""
    #: How often `old` must be there; default 1.
    count: int | None = None
    new: str | None = None
    #: Text that is there, exactly.
    old: str | None = None
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EditFiles(Fields):
    #: Done all, or none of them.
    edits: list[Edit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment(Fields):
    """An environment, installed or only known by name."""
    architecture: str
    build: BuildReport | None = None
    #: What the image runs when nothing else is asked for.
    cmd: list[str] = field(default_factory=lambda: [])
    created_at: str | None = None
    default_user: str
    default_workdir: str
    description: str
    digest: str | None = None
    #: What the image runs before `cmd`, or with it.
    entrypoint: list[str] = field(default_factory=lambda: [])
    installed: bool
    #: Of the image, from the lowest to the highest.
    layers: list[EnvironmentLayer] = field(default_factory=lambda: [])
    #: Of the image it was unpacked from.
    manifest_digest: str | None = None
    name: str
    #: Whose it is, such as `project:acme`; missing where it is the host's, which every project may start from.
    owner: str | None = None
    packages: list[str]
    size_bytes: int | None = None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentLayer(Fields):
    """One layer of the image an environment was unpacked from."""
    #: Of the layer as it was received.
    digest: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentList(Fields):
    count: int
    environments: list[Environment]
    #: There are more: ask with this as `cursor`.
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Error(Fields):
    """An error as every face reports it."""
    #: Facts for a program: ids, limits, names.
    details: Any = None
    #: The next step in words, if one is known.
    hint: str | None = None
    kind: ErrorKind
    #: A lower-case fragment that can follow "failed: ".
    message: str
    #: The hint as data, if it names more than words: verbs, fields, commands of the host.
    next: list[Next] = field(default_factory=lambda: [])


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFacts(Fields):
    """What is known of an event besides what it is about."""
    #: Of `events.gone`: the number that was asked for.
    asked: int | None = None
    #: The copies that a fork made.
    copies: list[str] = field(default_factory=lambda: [])
    #: Of an environment.
    digest: str | None = None
    duration_ms: int | None = None
    environment: str | None = None
    exit_code: int | None = None
    isolation: str | None = None
    #: Limits that a call has reached.
    limits: list[str] = field(default_factory=lambda: [])
    #: Of a snapshot, or the name of a workspace.
    name: str | None = None
    #: How a call went: `ok`, the kind of its error, or `abandoned`.
    outcome: str | None = None
    #: Who paused it: `caller`, `idle` or `shortage`.
    paused_by: str | None = None
    #: Why it happened, where nobody asked for it.
    reason: str | None = None
    runtime: str | None = None
    signal: int | None = None
    #: The verb of a call.
    verb: str | None = None
    #: Of a daemon.
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecBody(Fields):
    """An exec, and whether it runs on after the answer."""
    #: Start the process, answer with its pid, and leave it running.
    background: bool = False
    command: list[str]
    env: dict[str, str] = field(default_factory=lambda: {})
    #: What its standard input holds, as text; it ends after that.
    input: str | None = None
    #: The same as bytes, in base64.
    input_base64: str | None = None
    #: Bytes returned per channel, where the output is collected.
    max_output_bytes: int | None = None
    mode: ExecMode | None = None
    #: No time limit (for terminals and services); excludes `timeout_seconds`.
    no_timeout: bool = False
    #: Bytes kept per channel inside the machine.
    output_ring_bytes: int | None = None
    #: Keep standard input open for the caller; otherwise it is empty.
    stdin: bool = False
    #: A name to find the process again by.
    tag: str | None = None
    #: The whole process tree is killed after this; default 30.
    timeout_seconds: int | None = None
    tty: TtySize | None = None
    #: Name or number of the user it runs as; default: that of the environment.
    user: str | None = None
    #: The directory it starts in; default: `/workspace` in a workspace, elsewhere that of the sandbox.
    workdir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest(Fields):
    """One command to run."""
    command: list[str]
    env: dict[str, str] = field(default_factory=lambda: {})
    #: What its standard input holds, as text; it ends after that.
    input: str | None = None
    #: The same as bytes, in base64.
    input_base64: str | None = None
    #: Bytes returned per channel, where the output is collected.
    max_output_bytes: int | None = None
    mode: ExecMode | None = None
    #: No time limit (for terminals and services); excludes `timeout_seconds`.
    no_timeout: bool = False
    #: Bytes kept per channel inside the machine.
    output_ring_bytes: int | None = None
    #: Keep standard input open for the caller; otherwise it is empty.
    stdin: bool = False
    #: A name to find the process again by.
    tag: str | None = None
    #: The whole process tree is killed after this; default 30.
    timeout_seconds: int | None = None
    tty: TtySize | None = None
    #: Name or number of the user it runs as; default: that of the environment.
    user: str | None = None
    #: The directory it starts in; default: `/workspace` in a workspace, elsewhere that of the sandbox.
    workdir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult(Fields):
    """A collected exec. Output that is not UTF-8 is in the `_base64` fields."""
    #: What its processor runs on (`kvm`, `tcg`), where there is a choice.
    accelerator: str | None = None
    audit_id: AuditId | None = None
    duration_ms: int
    environment: str
    exit_code: int
    isolation: Isolation
    network: str
    #: The limits that nothing enforces on its machine; `limits` of the sandbox says why.
    not_enforced: list[str] = field(default_factory=lambda: [])
    not_started: NotStarted | None = None
    out_of_memory: bool
    runtime: str
    sandbox_id: SandboxId
    signal: int | None = None
    stderr: str
    stderr_base64: str | None = None
    stderr_bytes: int
    stdout: str
    stdout_base64: str | None = None
    stdout_bytes: int
    timed_out: bool
    #: Whether output was cut at `max_output_bytes`.
    truncated: bool
    workspace_id: SandboxId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited(Fields):
    """How a command ended."""
    duration_ms: int
    #: The exit code, or 128 + signal.
    exit_code: int
    max_rss_bytes: int
    not_started: NotStarted | None = None
    #: The memory limit killed something of it.
    out_of_memory: bool
    signal: int | None = None
    stderr_bytes: int
    stdout_bytes: int
    system_cpu_us: int
    timed_out: bool
    user_cpu_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectInTerminal(Fields):
    """Wait for text."""
    #: Let the echo of what was typed match.
    echo: bool = False
    #: Where to begin: `next_cursor` of another answer. Default: with what is on the screen.
    from_: str | None = field(default=None, metadata={"wire": "from"})
    #: Take the patterns as they are written.
    literal: bool = False
    #: Bytes of text; the middle is left out when there is more. Default 16384.
    max_output_bytes: int | None = None
    #: Regular expressions; the first to match in the stream wins.
    patterns: list[str]
    #: Match the bytes as they came, escapes included.
    raw: bool = False
    #: Text without control sequences, as a person would see it; default true.
    strip_ansi: bool | None = None
    #: In seconds; the default depends on the request.
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained(Fields):
    """Whether a destination may be reached, and why."""
    allowed: bool
    host: str
    #: For people.
    message: str
    policy: PolicyRef
    port: int
    protocol: str
    #: A word that stays the same, such as `no_rule`.
    reason: str
    #: The rule that decided, if one did.
    rule: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportDisk(Fields):
    """Where the disk of a stopped workspace is copied to."""
    #: Replace a plain file that is there. Nothing else is ever replaced.
    force: bool = False
    #: Of contents, holes included; default `export_bytes`.
    max_bytes: int | None = None
    #: On the daemon's host, absolute: a new name.
    output_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFiles(Fields):
    """What is copied to the host, and where to."""
    #: Replace a plain file that is there. Nothing else is ever replaced.
    force: bool = False
    #: Of contents, holes included; default `export_bytes`.
    max_bytes: int | None = None
    #: On the daemon's host, absolute: a new name, or an empty directory for a tree.
    output_path: str
    #: At or below `/workspace`.
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported(Fields):
    """A copy on the host."""
    bytes_written: int
    entry_count: int
    output_path: str
    type: FileType
    workspace_id: SandboxId
    workspace_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(Fields):
    """What is known of a call besides who made it: where it ran and how it went. Never what was said, printed or
    written.
    """
    #: What went in: the content of a file that was written.
    bytes_in: int | None = None
    #: What came out: of a command, a file, a stream.
    bytes_out: int | None = None
    #: Of the environment.
    digest: str | None = None
    environment: str | None = None
    exit_code: int | None = None
    isolation: Isolation | None = None
    #: Limits that were reached: `timeout_seconds`, `mem_mib`, `max_output_bytes`, or the one that an error
    #: names.
    limits: list[str] = field(default_factory=lambda: [])
    network: str | None = None
    runtime: str | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure(Fields):
    """Why a call did not do what it was to."""
    class_: FailureClass = field(metadata={"wire": "class"})
    #: A word that stays the same: the kind of the error, or `exit_code`, `timeout`, `cleanup`.
    code: str
    message: str
    #: Whether and how to try again.
    retry: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange(Fields):
    """One change seen by a watch."""
    from_: str | None = field(default=None, metadata={"wire": "from"})
    kind: ChangeKind
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry(Fields):
    """One file, directory or link."""
    gid: int
    group: str
    link_target: str | None = None
    #: Permission bits, in octal.
    mode: str
    modified_at: datetime
    name: str
    owner: str
    path: str
    #: The exact path when it is not UTF-8.
    path_base64: str | None = None
    #: Such as `-rwxr-xr-x`.
    permissions: str
    size_bytes: int
    type: FileType
    uid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHash(Fields):
    #: Lower-case hexadecimal.
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePage(Fields):
    """One page of entries."""
    entries: list[FileEntry]
    #: Pass as `after` for the next page (base64); missing on the last one.
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileText(Fields):
    """A text file, up to a budget."""
    content: str
    max_bytes: int
    path: str
    size_bytes: int
    truncated: bool
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWritten(Fields):
    bytes_written: int
    path: str
    size_bytes: int
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork(Fields):
    """How many live copies are made."""
    #: How many copies; default 1.
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkWorkspace(Fields):
    """Live or saved copies of a workspace."""
    #: How many; default 1.
    count: int | None = None
    #: Names of the copies begin with this.
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap(Fields):
    """Output that was no longer kept when this reader asked for it."""
    channel: Channel
    from_: int = field(metadata={"wire": "from"})
    to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened(Fields):
    """An event that has no number yet."""
    audit_id: AuditId | None = None
    facts: EventFacts
    #: What it happened to: a sandbox, a workspace, an environment, a key.
    id: str | None = None
    #: Such as `sandbox.created`; docs/events.md has all of them.
    kind: str
    #: Whose it is: a project, or `local` for what is nobody's or of a user of the host.
    project: str
    #: When it was written down: RFC 3339 in UTC.
    time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvent(Fields):
    """One thing that happened on this host."""
    audit_id: AuditId | None = None
    facts: EventFacts
    #: What it happened to: a sandbox, a workspace, an environment, a key.
    id: str | None = None
    #: Such as `sandbox.created`; docs/events.md has all of them.
    kind: str
    #: Whose it is: a project, or `local` for what is nobody's or of a user of the host.
    project: str
    #: Grows from event to event, over restarts too. There may be gaps.
    sequence: int
    #: When it was written down: RFC 3339 in UTC.
    time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Keepalive(Fields):
    """The time to live, and how commands start, from now on."""
    #: Variables that every command gets beside those it gets already.
    env: dict[str, str] = field(default_factory=lambda: {})
    #: How long nobody may use it from now on; as before when missing.
    idle_seconds: int | None = None
    on_idle: OnIdle | None = None
    #: A new time to live; the old one again when missing.
    ttl_seconds: int | None = None
    #: Whom commands run as that name nobody; as before when missing.
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Key(Fields):
    """What may be said of a key."""
    #: What the machines made with it may be.
    bounds: Bounds | None = None
    #: 0 is any number.
    calls_per_minute: int | None = None
    created_at: datetime
    #: Missing when it never expires.
    expires_at: datetime | None = None
    key_id: KeyId
    #: About when it was used last; written down now and then.
    last_used_at: datetime | None = None
    name: str | None = None
    project: str
    revoked_at: datetime | None = None
    scopes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCreated(Fields):
    """A new key, with what callers send. It is shown this once."""
    #: What the machines made with it may be.
    bounds: Bounds | None = None
    #: 0 is any number.
    calls_per_minute: int | None = None
    created_at: datetime
    #: Missing when it never expires.
    expires_at: datetime | None = None
    #: The key itself.
    key: str
    key_id: KeyId
    #: About when it was used last; written down now and then.
    last_used_at: datetime | None = None
    name: str | None = None
    project: str
    revoked_at: datetime | None = None
    scopes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyList(Fields):
    """Keys, the newest last."""
    count: int
    keys: list[Key]
    #: There are more: ask with this as `cursor`.
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeDirectory(Fields):
    #: Octal, such as `0755`.
    mode: str | None = None
    #: Absolute, inside the sandbox.
    path: GuestPath | None = None
    #: Instead of `path`, when it is not UTF-8.
    path_base64: str | None = None
    #: Name or number of the user that it is done as, who may do no more than that; root of the sandbox when
    #: missing.
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPoint(Fields):
    """What a sandbox used, as the host sees it, at one time or on average up to it."""
    at: datetime
    #: Processor time, in hundredths of one processor: two that are busy are 200.
    cpu_pct: float
    #: Looked at every 30 s.
    disk_bytes: int
    mem_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(Fields):
    """One measurement of a sandbox, taken now."""
    cpu_us: int
    cpus: int
    disk_total_bytes: int
    disk_used_bytes: int
    guest_rss_bytes: int
    memory_total_bytes: int
    memory_used_bytes: int
    processes: int
    uptime_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsFlushed(Fields):
    """The points of every range, oldest first. They are not kept any longer."""
    points_10m: list[MetricPoint]
    points_24h: list[MetricPoint]
    points_2h: list[MetricPoint]
    sandbox_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsHistory(Fields):
    """The points of one range, oldest first."""
    points: list[MetricPoint]
    range: MetricsRange
    sandbox_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes(Fields):
    """Modes that change what input means."""
    alternate_screen: bool
    app_cursor: bool
    app_keypad: bool
    bracketed_paste: bool
    focus: bool
    mouse: bool
    sgr_mouse: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFile(Fields):
    from_: GuestPath | None = field(default=None, metadata={"wire": "from"})
    #: Instead of `from`, when it is not UTF-8.
    from_base64: str | None = None
    overwrite: bool = False
    to: GuestPath | None = None
    #: Instead of `to`, when it is not UTF-8.
    to_base64: str | None = None
    #: Name or number of the user that it is done as, who may do no more than that; root of the sandbox when
    #: missing.
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkBounds(Fields):
    """How much a sandbox's network may carry; 0 is no limit."""
    bytes: int
    bytes_per_second: int
    connections: int
    connects_per_second: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCapsule(Fields):
    #: Default 512.
    memory_mb: int | None = None
    #: Labels of the caller's own.
    metadata: dict[str, str] = field(default_factory=lambda: {})
    #: The runtime that makes it; the strongest that works when missing.
    runtime: str | None = None
    #: A template, or else an environment; default `minimal`.
    template: str | None = None
    #: Paused after so much quiet; 0 (the default) is never.
    timeout_sec: int | None = None
    vcpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextWords(Fields):
    """Words around the other steps."""
    text: str
    type: Literal["words"] = "words"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextVerb(Fields):
    """A verb to call."""
    #: Parts of its address and fields of its request, by name.
    arguments: dict[str, Any] = field(default_factory=lambda: {})
    #: Its name: the `operationId` of the API.
    verb: str
    type: Literal["verb"] = "verb"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextField(Fields):
    """A field of a request to give, to change or to leave out."""
    field: str
    #: What would help, if it is one value.
    value: Any = None
    #: The verb it belongs to, if that is not the one that failed.
    verb: str | None = None
    type: Literal["field"] = "field"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextHost(Fields):
    """A command for the shell of the host, where only its operator is."""
    command: str
    type: Literal["host"] = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextSetting(Fields):
    """A key of the daemon's config.toml."""
    key: str
    type: Literal["setting"] = "setting"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextUnknown(Fields):
    """A step of a newer motu; `hint` says it in words."""
    type: Literal["unknown"] = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenShell(Fields):
    """A persistent terminal."""
    #: Default 120.
    cols: int | None = None
    #: Default `/workspace`.
    cwd: str | None = None
    env: dict[str, str] = field(default_factory=lambda: {})
    #: Default 30.
    rows: int | None = None
    secret_env: list[SecretEnv] = field(default_factory=lambda: [])
    #: Name or number of the user it runs as; default: that of the environment.
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTerminal(Fields):
    """Opens a session, or finds it."""
    #: The shell, or any other program with its arguments; default `bash`.
    command: list[str] = field(default_factory=lambda: [])
    #: Where the shell starts; default `/workspace` where there is one, else the user's home.
    cwd: str | None = None
    description: str | None = None
    env: dict[str, str] = field(default_factory=lambda: {})
    #: On the host itself, with no isolation. Only where the daemon's owner asks for it.
    host: bool = False
    #: What the shell's prompt looks like, where nothing else can tell.
    prompt_regex: str | None = None
    #: Silence, in ms, after which a look is taken at a program without marks; default 100.
    quiescence_ms: int | None = None
    sandbox_id: SandboxId | None = None
    session_id: str
    size: TtySize | None = None
    user: str | None = None
    #: Let the shell read the user's own files (`.bashrc`).
    user_files: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFile(Fields):
    """A file that a call gives back."""
    bytes: int
    content: str
    #: `utf-8` or `base64`.
    encoding: str
    #: Why there is no content, if there is none.
    error: str | None = None
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch(Fields):
    #: One unified patch of text files.
    patch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchReport(Fields):
    """What a patch or a set of edits did; all of it, or an error and none of it."""
    added: int
    changed: bool
    deleted: int
    entries: list[PatchedFile]
    modified: int
    renamed: int
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchedFile(Fields):
    from_: str | None = field(default=None, metadata={"wire": "from"})
    path: str
    #: `added`, `modified`, `deleted` or `renamed`.
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PathInfo(Fields):
    """A place under `/workspace`, without what is in its files."""
    link_target: str | None = None
    #: Permission bits, in octal.
    mode: str
    modified_at: datetime
    path: str
    size_bytes: int
    type: FileType


@dataclass(frozen=True, slots=True, kw_only=True)
class PathList(Fields):
    entries: list[PathInfo]
    path: str
    recursive: bool
    #: There is more than `list_entries_max`.
    truncated: bool
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(Fields):
    """Since when a sandbox is paused, and why."""
    at: datetime
    by: PausedBy


@dataclass(frozen=True, slots=True, kw_only=True)
class Point(Fields):
    cpu_pct: float
    disk_bytes: int
    mem_bytes: int
    timestamp_unix: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(Fields):
    """A policy, as it is understood."""
    #: Destinations that sandboxes may reach; all others are refused.
    allow: list[PolicyAllow]
    #: Of calls.
    call: CallBounds
    description: str
    hash: str
    name: str
    #: Of a sandbox's network.
    network: NetworkBounds
    source: str
    #: Its text.
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAllow(Fields):
    """One capability: destinations that go together."""
    capability: str
    #: A name, `*.suffix`, an address, a network, or `*` for everything public.
    hosts: list[str]
    #: The names may lead to addresses of IPv6.
    ipv6: bool = False
    #: What is neither HTTP nor TLS with a name may pass too.
    opaque: bool
    #: Empty: every port.
    ports: list[str]
    #: The names may lead to private addresses.
    private: bool
    protocol: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyList(Fields):
    """Policies, by name."""
    count: int
    #: There are more: ask with this as `cursor`.
    next_cursor: str | None = None
    policies: list[PolicySummary]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRef(Fields):
    """Which policy applied, exactly."""
    #: Of its text: `sha256:` and 64 digits.
    hash: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySummary(Fields):
    """A policy in a list."""
    #: What it opens, by name.
    capabilities: list[str]
    description: str
    #: Why it cannot be used; missing when it can.
    error: str | None = None
    hash: str
    name: str
    #: `shipped` with motu, or a `file` of the operator's.
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PollTerminal(Fields):
    """Wait for output without typing anything."""
    #: Bytes of text; the middle is left out when there is more. Default 16384.
    max_output_bytes: int | None = None
    #: Text without control sequences, as a person would see it; default true.
    strip_ansi: bool | None = None
    #: In seconds; the default depends on the request.
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Port(Fields):
    """A TCP port something in a sandbox listens on."""
    address: str
    pid: int | None = None
    port: int
    process: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortList(Fields):
    count: int
    #: There are more: ask with this as `cursor`.
    next_cursor: str | None = None
    ports: list[Port]
    sandbox_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(Fields):
    """A process the service started."""
    #: Living processes of its tree.
    alive: int
    command: list[str]
    exited: Exited | None = None
    pid: int
    started_at: datetime
    stderr_bytes: int
    stdout_bytes: int
    tag: str | None = None
    tty: bool
    user: str
    workdir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessList(Fields):
    count: int
    #: There are more: ask with this as `cursor`.
    next_cursor: str | None = None
    processes: list[Process]
    sandbox_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class Program(Fields):
    """A program to run: what, where, as whom, with which variables, and how it is bounded."""
    command: list[str] = field(default_factory=lambda: [])
    env: dict[str, str] = field(default_factory=lambda: {})
    #: What its standard input holds, as text; it ends after that.
    input: str | None = None
    #: The same as bytes, in base64.
    input_base64: str | None = None
    #: Bytes returned per channel, where the output is collected.
    max_output_bytes: int | None = None
    mode: ExecMode | None = None
    #: Keep standard input open for the caller; otherwise it is empty.
    stdin: bool = False
    #: The whole process tree is killed after this; default 30.
    timeout_seconds: int | None = None
    #: Name or number of the user it runs as; default: that of the environment.
    user: str | None = None
    #: The directory it starts in; default: `/workspace` in a workspace, elsewhere that of the sandbox.
    workdir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressEvent(Fields):
    """A step of a long call."""
    done: int | None = None
    message: str
    stage: str
    total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prune(Fields):
    """Which environments go."""
    #: Also environments that could be used again.
    all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned(Fields):
    """What a prune removed."""
    freed_bytes: int
    #: Kept because sandboxes still use them.
    in_use: list[str]
    removed: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish(Fields):
    """A port of the guest, and where it is reached on 127.0.0.1."""
    guest_port: int
    #: Chosen by the host when missing.
    host_port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPort(Fields):
    guest_port: int
    host: str
    host_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessFile(Fields):
    """A file exists."""
    path: str
    type: Literal["file"] = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessTcp(Fields):
    """A port accepts connections."""
    port: int
    type: Literal["tcp"] = "tcp"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessHttp(Fields):
    """A port answers a GET with a status below 400."""
    path: str | None = None
    port: int
    type: Literal["http"] = "http"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessCommand(Fields):
    """A shell command exits with 0."""
    command: str
    type: Literal["command"] = "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessLog(Fields):
    """A line of the output matches a regular expression."""
    pattern: str
    type: Literal["log"] = "log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped(Fields):
    """What was destroyed because its time was over."""
    count: int
    #: There are more: ask with this as `cursor`.
    next_cursor: str | None = None
    sandbox_ids: list[SandboxId]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildTemplate(Fields):
    """How a template is built again."""
    #: Run every step again.
    no_cache: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(Fields):
    """An entry that proves itself: see docs/audit.md."""
    checkpoint: dict[str, Any]
    entry: AuditEntry
    #: From the entry's hash to the checkpoint's root: `side` and `hash` of each neighbour.
    path: list[dict[str, Any]]
    public_key: str
    v: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTo(Fields):
    """What a workspace goes back to."""
    #: A snapshot's name; default `baseline`.
    snapshot: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInTerminal(Fields):
    """A command line for the shell, or a line for the program in front."""
    command: str
    #: Type it even if a program that reads nothing, or asks for a secret, is in front.
    force: bool = False
    #: Bytes of text; the middle is left out when there is more. Default 16384.
    max_output_bytes: int | None = None
    #: Text without control sequences, as a person would see it; default true.
    strip_ansi: bool | None = None
    #: In seconds; the default depends on the request.
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest(Fields):
    """A one-shot: make a sandbox, run one command, throw the sandbox away."""
    exec: ExecRequest
    sandbox: CreateSandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Running(Fields):
    args: list[str]
    cmd: str
    pid: int
    tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeReport(Fields):
    """A runtime as it is on this host."""
    capabilities: list[str]
    checks: list[Check]
    #: Why it does not, or what it found.
    detail: str
    #: Its machines run on an emulated processor: chosen only when nothing faster will do.
    emulated: bool
    fix: str | None = None
    isolation: Isolation
    name: str
    works: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox(Fields):
    """What is known of a sandbox."""
    #: What its processor runs on (`kvm`, `tcg`), where there is a choice.
    accelerator: str | None = None
    created_at: datetime
    #: Digest of the root it started from.
    digest: str
    environment: str
    #: Missing when it never expires.
    expires_at: datetime | None = None
    idle_seconds: int
    isolation: Isolation
    #: Its disks outlive its machine.
    keep: bool = False
    labels: dict[str, str] = field(default_factory=lambda: {})
    last_activity_at: datetime
    limits: list[AppliedLimit]
    mem_mib: int
    #: `off`, `egress`, or `host` where nothing isolates.
    network: str
    on_idle: OnIdle | None = None
    #: Who it belongs to: `uid:` and a user of the host. Empty when it is older than owners are.
    owner: str | None = None
    paused: Paused | None = None
    policy: PolicyRef | None = None
    #: Why it failed.
    reason: str | None = None
    runtime: str
    sandbox_id: SandboxId
    state: State
    template: TemplateRef | None = None
    #: 0: it lives until it is destroyed.
    ttl_seconds: int
    user: str
    vcpu_count: int
    workdir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxList(Fields):
    count: int
    #: There are more: ask with this as `cursor`.
    next_cursor: str | None = None
    sandboxes: list[Sandbox]


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveAs(Fields):
    """The name of a new snapshot."""
    snapshot_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCapsule(Fields):
    """Which capsule is saved, and as what: `template-` and eight digits when no name is given."""
    name: str | None = None
    sandbox_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveTemplate(Fields):
    """How a sandbox becomes a template."""
    #: With the memory, or the files alone. When missing: with it, where the runtime can and the sandbox has a
    #: machine.
    memory: bool | None = None
    #: What the template will be called; no other may have the name.
    name: str
    #: What becomes of the sandbox. One that is saved with its memory is not interrupted by `start`.
    then: AfterCommit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved(Fields):
    created_at: datetime | None = None
    memory_mb: int | None = None
    metadata: dict[str, str]
    name: str
    #: It is the host's, and everybody's.
    platform: bool
    #: It cannot be removed.
    protected: bool
    size_bytes: int | None = None
    type: str
    vcpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTemplate(Fields):
    """A sandbox that became a template."""
    #: Its disks were kept, so those of its machines are too.
    keep: bool
    #: Machines of the template begin where the sandbox was: with its memory and what ran in it. Otherwise they
    #: begin with its files.
    memory: bool
    saved_at: datetime
    #: What it takes on the host's disk.
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretEnv(Fields):
    """A persisted secret and the variable it is given as."""
    secret: str
    #: The variable's name; the secret's own when missing.
    variable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretInfo(Fields):
    """What may be said of a secret."""
    name: str
    #: `literal` or `file`.
    source_kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretList(Fields):
    """Secrets of calls, by name."""
    count: int
    #: There are more: ask with this as `cursor`.
    next_cursor: str | None = None
    secrets: list[SecretSummary]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef(Fields):
    """A secret by its name. Values are never part of a request."""
    ref: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSource(Fields):
    """A secret a caller hands over. Exactly one of `value` and `path`."""
    name: str
    #: A file on the daemon's host whose UTF-8 content is the value.
    path: str | None = None
    value: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSummary(Fields):
    """What may be said of a secret."""
    #: A secret access key of AWS.
    aws: bool = False
    #: Placeholders in bodies of requests are replaced too.
    body: bool = False
    created_at: datetime
    #: The fingerprint of its public key, as `ssh-keygen -l` prints it.
    fingerprint: str | None = None
    #: The hosts it is bound to; empty for one that is handed over.
    hosts: list[str] = field(default_factory=lambda: [])
    #: The type of a private key of SSH, such as `ssh-ed25519`.
    key_type: str | None = None
    name: str
    #: `sealed`, `variable` or `command`.
    source_kind: str
    #: When its value was given last.
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SendToTerminal(Fields):
    """What is typed; exactly one of the first four."""
    #: A letter to be typed with Ctrl, or `[`/`esc` for Escape.
    control: str | None = None
    #: Names of keys: `Up`, `F5`, `Ctrl-C`, `Alt-x`, `Enter`.
    keys: list[str] | None = field(default_factory=lambda: [])
    #: Bytes of text; the middle is left out when there is more. Default 16384.
    max_output_bytes: int | None = None
    #: As one paste, in brackets where the program asks for them.
    paste: str | None = None
    #: Text without control sequences, as a person would see it; default true.
    strip_ansi: bool | None = None
    #: As it is, without a newline.
    text: str | None = None
    #: In seconds; the default depends on the request.
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceList(Fields):
    count: int
    #: There are more: ask with this as `cursor`.
    next_cursor: str | None = None
    services: list[ServiceStatus]
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLogs(Fields):
    service_name: str
    stderr: str
    stdout: str
    #: Older output is not here.
    truncated: bool
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus(Fields):
    """What is known of a service."""
    command: list[str]
    cwd: str
    ended_at: datetime | None = None
    exit_code: int | None = None
    pid: int | None = None
    published_ports: list[PublishedPort]
    readiness: Readiness | None = None
    ready_at: datetime | None = None
    #: Why it ended, or is not ready.
    reason: str | None = None
    restart: Restart
    restart_count: int
    service_name: str
    started_at: datetime
    state: ServiceState
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPolicy(Fields):
    """Another policy for a sandbox that is there."""
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSecret(Fields):
    """Where a secret's value is. Exactly one of the four."""
    #: It is a secret access key of AWS: requests that were signed with the placeholder are signed again with it.
    aws: bool = False
    #: Placeholders in bodies of requests are replaced too.
    body: bool = False
    #: A program and its arguments, run on the daemon's host whenever the secret is needed; what it prints,
    #: without the last line's end, is the value.
    command: list[str] | None = field(default_factory=lambda: [])
    #: The hosts it is bound to, such as `api.example.com` or `*.example.com`. A bound secret is never inside of
    #: a sandbox: a placeholder is, and the gateway puts the value in its place in requests to these hosts. Not
    #: with `rotate`, which leaves it bound as it is.
    hosts: list[str] = field(default_factory=lambda: [])
    #: With `ssh`: lines of a `known_hosts` file, with at least one key of each host.
    known_hosts: str | None = None
    #: A file on the daemon's host whose UTF-8 content is the value; it is read once, now.
    path: str | None = None
    #: The secret must be there already.
    rotate: bool = False
    #: It is a private key of SSH in OpenSSH's format, without a passphrase. Sandboxes that refer to it have an
    #: agent, which signs logins at these hosts and nothing else. By `value` or `path`.
    ssh: bool = False
    #: The value itself; it is kept sealed.
    value: str | None = field(default=None, repr=False)
    #: A variable of the daemon, read whenever the secret is needed.
    variable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell(Fields):
    cwd: str
    exit_code: int | None = None
    pid: int | None = None
    shell_id: str
    size: TtySize
    started_at: datetime
    #: `running`, `closed` or `ended`.
    state: str
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellList(Fields):
    count: int
    #: There are more: ask with this as `cursor`.
    next_cursor: str | None = None
    shells: list[Shell]
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellOutput(Fields):
    cursor: int
    #: Output before `cursor` was no longer kept.
    lost: bool
    next_cursor: int
    output: str
    plain: bool
    shell_id: str
    state: str
    #: There is more; read on from `next_cursor`.
    truncated: bool
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalProcess(Fields):
    """A signal for a process, or for everything it started."""
    #: A name such as `TERM`, or a number as text.
    signal: Signal
    #: Everything the process started, not only its group.
    tree: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalShell(Fields):
    """A signal for what runs in the foreground of a shell."""
    #: A name such as `INT` (the default), or a number as text.
    signal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalTerminal(Fields):
    """A signal for the foreground process group."""
    #: Bytes of text; the middle is left out when there is more. Default 16384.
    max_output_bytes: int | None = None
    #: `TERM`, `SIGTERM` or a number.
    signal: str
    #: Text without control sequences, as a person would see it; default true.
    strip_ansi: bool | None = None
    #: In seconds; the default depends on the request.
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Size(Fields):
    """How large a machine is. What is missing is the host's default."""
    #: What it may write to its disk; default 10240.
    disk_mib: int | None = None
    #: Memory it may use; default 1024.
    mem_mib: int | None = None
    #: CPUs it may use; default 1.
    vcpu_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Fields):
    """A named state of `/workspace`."""
    #: Paths that differ from the baseline.
    changed_count: int
    created_at: datetime
    deletable: bool
    #: Paths below `/workspace` in this state; missing if the snapshot cannot be read.
    entry_count: int | None = None
    #: `baseline` or `named`.
    kind: str
    snapshot_name: str
    #: What it takes on the host's disk alone.
    stored_bytes: int
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotList(Fields):
    """The baseline first."""
    count: int
    #: There are more: ask with this as `cursor`.
    next_cursor: str | None = None
    snapshots: list[Snapshot]
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class StartService(Fields):
    """A long-running process with a name."""
    command: list[str]
    #: Default `/workspace`.
    cwd: str | None = None
    env: dict[str, str] = field(default_factory=lambda: {})
    mode: ExecMode | None = None
    published_ports: list[Publish] = field(default_factory=lambda: [])
    readiness: Readiness | None = None
    #: The longest pause between two probes; default 500.
    ready_interval_ms: int | None = None
    #: Default 30.
    ready_timeout_seconds: int | None = None
    restart: Restart | None = None
    secret_env: list[SecretEnv] = field(default_factory=lambda: [])
    service_name: str
    #: Name or number of the user it runs as; default: that of the environment.
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Fields):
    pid: int
    stderr_from: int
    #: Byte offset at which the stdout of this session begins.
    stdout_from: int
    tag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPush(Fields):
    """Brings later content of the host into a running workspace."""
    #: A directory at or below `/workspace`; default `/workspace`.
    dest: str | None = None
    #: Leave out what `.gitignore` files name (directories only).
    gitignore: bool = False
    #: A directory or an archive on the daemon's host.
    source_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport(Fields):
    bytes_written: int
    destination: str
    #: Entries looked at, sent, and left alone because they were the same.
    entry_count: int
    #: `directory` or `tar_archive`.
    mode: str
    sent_count: int
    source_path: str
    unchanged_count: int
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class TagAs(Fields):
    """Another name for an environment."""
    #: A word, such as `mine:1`, that is not the name of anything yet.
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Template(Fields):
    """A template."""
    built: TemplateBuild | None = None
    created_at: datetime
    definition: TemplateDefinition
    #: Of the definition, without `pool_size` and `labels`: `sha256:` and 64 digits.
    digest: str
    name: str
    #: Who it belongs to: `uid:` and a user of the host.
    owner: str
    #: The machines that wait for it.
    pool: TemplatePool | None = None
    saved: SavedTemplate | None = None
    updated_at: datetime
    #: Counts what machines were made from: the definition, and what the setup made of it.
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateBuild(Fields):
    """What the setup of a template made."""
    built_at: datetime
    #: Of its root.
    digest: str
    #: The environment, by name.
    environment: str
    #: What it takes on the host's disk; missing in those of older versions.
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateDefinition(Fields):
    """What machines of a template are made from. Everything but the environment has a default."""
    #: The only hosts that its machines reach, of those that `policy` allows: `api.example.com`, `*.example.com`,
    #: an address; each with `:PORT`, or with every port that the policy allows.
    allowed_hosts: list[str] = field(default_factory=lambda: [])
    #: What it may write to its disk; default 10240.
    disk_mib: int | None = None
    #: Environment variables of the setup and of every command.
    env: dict[str, str] = field(default_factory=lambda: {})
    #: The environment to begin with, such as `debian:12`.
    environment: str
    isolation: Isolation | None = None
    labels: dict[str, str] = field(default_factory=lambda: {})
    #: Memory it may use; default 1024.
    mem_mib: int | None = None
    #: The policy of its network, which it then has; `public` when there are `allowed_hosts`.
    policy: str | None = None
    #: Machines that wait ready for it. Those with a network cannot wait.
    pool_size: int | None = None
    #: A runtime's name.
    runtime: str | None = None
    #: Variables that hold placeholders of secrets that are bound to hosts: `{"KEY": {"ref": "openai-api-key"}}`.
    #: Values are never part of a template.
    secret_refs: dict[str, SecretRef] = field(default_factory=lambda: {})
    #: Commands for its shell, one step each. What they change is the environment that machines start from; it is
    #: built once.
    setup: list[str] = field(default_factory=lambda: [])
    #: The policy of the network that the setup has; that of the machines when missing.
    setup_policy: str | None = None
    ttl_seconds: int | None = None
    #: CPUs it may use; default 1.
    vcpu_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateList(Fields):
    """Templates, by name."""
    count: int
    #: There are more: ask with this as `cursor`.
    next_cursor: str | None = None
    templates: list[Template]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplatePool(Fields):
    """The machines that wait for a template, as they are now."""
    #: Why there are fewer than there should be.
    problem: str | None = None
    #: Those that could be taken at once; another pool of the same kind counts too.
    ready: int
    #: Those that were taken since the daemon began.
    taken: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRef(Fields):
    """Which template a machine came from, as it was then."""
    digest: str
    labels: dict[str, str] = field(default_factory=lambda: {})
    name: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal(Fields):
    """What is known of a session."""
    #: The shell runs.
    alive: bool
    cols: int
    command: list[str]
    confidence: Confidence
    #: Bytes printed so far: the cursor of "from now on".
    cursor: int
    cwd: str | None = None
    description: str | None = None
    exit_code: int | None = None
    #: Its name.
    foreground: str | None = None
    isolation: Isolation
    last_activity_at: datetime
    #: The leader of the foreground process group, in its machine.
    pid: int | None = None
    prompt: Prompt
    prompt_regex: str | None = None
    quiescence_ms: int
    rows: int
    runtime: str
    sandbox_id: SandboxId
    session_id: str
    started_at: datetime
    #: Why, in a few words.
    state_reason: str
    status: Status
    #: It was ended by `terminate`, for good.
    terminated: bool
    title: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalAnswer(Fields):
    """The answer to whatever types or waits."""
    confidence: Confidence
    #: Where the stream was.
    cursor: int
    cwd: str | None = None
    #: Bytes of the output that are not shown.
    dropped_bytes: int
    duration_ms: int
    #: Why it was answered now.
    end: End
    #: Of the command that has ended.
    exit_code: int | None = None
    found: TerminalMatch | None = None
    #: The command's own output, or what came since.
    output: str
    output_truncated: bool
    prompt: Prompt
    #: Where the dropped bytes are: read them with `transcript`.
    rest_from: int | None = None
    rest_to: int | None = None
    #: Why, in a few words.
    state_reason: str
    status: Status
    timed_out: bool
    warnings: list[str] = field(default_factory=lambda: [])


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalList(Fields):
    """The living ones first, the most recently active first among them."""
    count: int
    #: There are more: ask with this as `cursor`.
    next_cursor: str | None = None
    sessions: list[Terminal]


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalMatch(Fields):
    #: What came before it.
    before: str
    groups: list[str | None]
    #: Which pattern, from 0.
    index: int
    #: Where the next look begins.
    next_cursor: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalOpened(Fields):
    #: The shell runs.
    alive: bool
    cols: int
    command: list[str]
    confidence: Confidence
    #: It was not there before.
    created: bool
    #: Bytes printed so far: the cursor of "from now on".
    cursor: int
    cwd: str | None = None
    description: str | None = None
    exit_code: int | None = None
    #: Its name.
    foreground: str | None = None
    isolation: Isolation
    last_activity_at: datetime
    #: The leader of the foreground process group, in its machine.
    pid: int | None = None
    prompt: Prompt
    prompt_regex: str | None = None
    quiescence_ms: int
    rows: int
    runtime: str
    sandbox_id: SandboxId
    session_id: str
    started_at: datetime
    #: Why, in a few words.
    state_reason: str
    status: Status
    #: It was ended by `terminate`, for good.
    terminated: bool
    title: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalPassword(Fields):
    """A secret, typed where the program does not show it."""
    #: Send it even where it may be shown.
    force: bool = False
    #: Bytes of text; the middle is left out when there is more. Default 16384.
    max_output_bytes: int | None = None
    password: str = field(repr=False)
    #: Text without control sequences, as a person would see it; default true.
    strip_ansi: bool | None = None
    #: In seconds; the default depends on the request.
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalScreen(Fields):
    """A picture of the screen."""
    cols: int
    confidence: Confidence
    cursor: int
    cursor_visible: bool
    cursor_x: int
    cursor_y: int
    format: ScreenFormat
    #: What to do where a picture could not show everything.
    hint: str | None = None
    modes: Modes
    prompt: Prompt
    rows: int
    #: Base64 for `png`. Row `cursor_y` of `text` is the cursor's.
    screen: str
    scrollback_rows: int
    #: Why, in a few words.
    state_reason: str
    status: Status
    title: str | None = None
    #: Always true unless the screen model had to begin anew.
    vt100_ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalScrollback(Fields):
    """The screen and what is above it."""
    cols: int
    confidence: Confidence
    #: Rows returned.
    lines: int
    prompt: Prompt
    rows: int
    scrollback: str
    #: Why, in a few words.
    state_reason: str
    status: Status
    #: Rows there are, the screen included.
    total_lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalState(Fields):
    """The state, in the words of every answer."""
    confidence: Confidence
    prompt: Prompt
    #: Why, in a few words.
    state_reason: str
    status: Status


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalTranscript(Fields):
    """What was printed, and where it is kept."""
    confidence: Confidence
    #: The directory on the daemon's host with the raw bytes, the recording and the log.
    directory: str
    end: int
    from_: int = field(metadata={"wire": "from"})
    #: A JSON object per line.
    interactions: str
    #: What the session is, as a JSON object; missing where an older daemon left none.
    metadata: str | None = None
    next_cursor: int
    #: The oldest byte that is kept.
    oldest: int
    prompt: Prompt
    #: An asciicast v3 file.
    recording: str
    #: Why, in a few words.
    state_reason: str
    status: Status
    text: str
    #: The newest segment of raw bytes.
    transcript: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeWritten(Fields):
    bytes: int
    entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TtySize(Fields):
    """The size of a terminal."""
    cols: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo(Fields):
    """How far `/workspace` goes back."""
    #: How many commands with a checkpoint are taken back; default 1.
    steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone(Fields):
    """What an `undo` did."""
    #: How many more commands can be taken back.
    checkpoint_count: int
    #: The commands that were taken back, the last one first, as far as the history knows them.
    commands: list[list[str]]
    removed_count: int
    #: Paths that were put back, and paths that were removed with all below them.
    restored_count: int
    steps: int
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateWorkspace(Fields):
    """Changes what people find a workspace by, and nothing else."""
    #: Keys to remove.
    clear_labels: list[str] = field(default_factory=lambda: [])
    clear_name: bool = False
    #: Added to the labels there are; equal keys are replaced.
    labels: dict[str, str] = field(default_factory=lambda: {})
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyAudit(Fields):
    """What an auditor kept from before."""
    #: The hash of a checkpoint or entry that must be in the log.
    expect: str | None = None
    #: The public key that must have signed it; otherwise the log's own.
    public_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Version(Fields):
    """What a daemon is."""
    api_version: str
    home: str
    pid: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Fields):
    """How long a request waits and how its output comes back."""
    #: Bytes of text; the middle is left out when there is more. Default 16384.
    max_output_bytes: int | None = None
    #: Text without control sequences, as a person would see it; default true.
    strip_ansi: bool | None = None
    #: In seconds; the default depends on the request.
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace(Fields):
    """What is known of a workspace."""
    accelerator: str | None = None
    #: `/workspace` is saved before each command.
    checkpoint: bool = False
    #: How many commands `undo` can take back.
    checkpoint_count: int | None = None
    command_count: int
    created_at: datetime
    digest: str
    environment: str
    expires_at: datetime | None = None
    #: Runs on the host itself, with no isolation.
    host_compat: bool
    isolation: Isolation
    labels: dict[str, str]
    last_activity_at: datetime
    last_reset_at: datetime | None = None
    mem_mib: int
    name: str | None = None
    network_policy: NetworkPolicy
    policy: PolicyRef | None = None
    #: Why it is in that state, when nobody asked for it.
    reason: str | None = None
    reset_count: int
    running_service_count: int
    runtime: str
    secrets: list[SecretInfo]
    service_count: int
    shell_count: int
    #: Named snapshots, the baseline not counted.
    snapshot_count: int
    #: `running`, `paused`, `stopped`, `failed`, …
    state: State
    template: TemplateRef | None = None
    vcpu_count: int
    workspace_id: SandboxId
    workspace_path: str
    workspace_seed: WorkspaceSeed


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceCopies(Fields):
    """The copies of a workspace."""
    count: int
    #: There are more: ask with this as `cursor`.
    next_cursor: str | None = None
    workspaces: list[Workspace]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceExec(Fields):
    """A command in a workspace. It runs in `/workspace` unless told otherwise."""
    #: Save `/workspace` first, for `undo`; default: what the workspace was created with.
    checkpoint: bool | None = None
    command: list[str]
    env: dict[str, str] = field(default_factory=lambda: {})
    #: What its standard input holds, as text; it ends after that.
    input: str | None = None
    #: The same as bytes, in base64.
    input_base64: str | None = None
    #: Bytes returned per channel, where the output is collected.
    max_output_bytes: int | None = None
    mode: ExecMode | None = None
    secret_env: list[SecretEnv] = field(default_factory=lambda: [])
    #: Keep standard input open for the caller; otherwise it is empty.
    stdin: bool = False
    #: The whole process tree is killed after this; default 30.
    timeout_seconds: int | None = None
    #: Name or number of the user it runs as; default: that of the environment.
    user: str | None = None
    #: The directory it starts in; default: `/workspace` in a workspace, elsewhere that of the sandbox.
    workdir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceList(Fields):
    """The most recently active first."""
    count: int
    #: There are more: ask with this as `cursor`.
    next_cursor: str | None = None
    workspaces: list[WorkspaceSummary]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSeed(Fields):
    """How `/workspace` began."""
    bytes_written: int
    destination: str
    entry_count: int
    #: `empty`, `directory`, `tar_archive` or `fork`.
    mode: str
    seed_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSummary(Fields):
    """One row of a listing."""
    command_count: int
    created_at: datetime
    environment: str
    expires_at: datetime | None = None
    isolation: Isolation
    labels: dict[str, str]
    last_activity_at: datetime
    name: str | None = None
    running_service_count: int
    runtime: str
    service_count: int
    state: State
    workspace_id: SandboxId


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteShell(Fields):
    #: Default true.
    append_newline: bool | None = None
    input: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteText(Fields):
    path: str
    text: str

#: One piece of a hint.
Next = NextWords | NextVerb | NextField | NextHost | NextSetting | NextUnknown

#: What shows that a service does its work.
Readiness = ReadinessFile | ReadinessTcp | ReadinessHttp | ReadinessCommand | ReadinessLog
