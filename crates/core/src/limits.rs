//! Every limit: its name, default and bounds, in one table.
//!
//! Requests carry optional values; [`Limit::resolve`] turns them into checked
//! numbers. `docs/limits.md` is generated from [`TABLE`].

use crate::Error;

/// A bounded number with a documented name.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub name: &'static str,
    pub default: u64,
    pub min: u64,
    pub max: u64,
    pub unit: &'static str,
    pub meaning: &'static str,
}

impl Limit {
    /// The default, or the asked value if it is within bounds.
    pub fn resolve(&self, asked: Option<u64>) -> Result<u64, Error> {
        let value = asked.unwrap_or(self.default);
        if (self.min..=self.max).contains(&value) {
            return Ok(value);
        }
        Err(Error::invalid(format!(
            "{} is {value}; it must be between {} and {}",
            self.name, self.min, self.max
        ))
        .details(serde_json::json!({
            "limit": self.name, "value": value, "min": self.min, "max": self.max,
        })))
    }
}

macro_rules! limits {
    ($($constant:ident = $name:literal, default $default:expr, $min:expr => $max:expr, $unit:literal, $meaning:literal;)*) => {
        $(pub const $constant: Limit = Limit {
            name: $name, default: $default, min: $min, max: $max, unit: $unit, meaning: $meaning,
        };)*
        /// All limits, in the order of the documentation.
        pub const TABLE: &[Limit] = &[$($constant),*];
    };
}

limits! {
    VCPU_COUNT = "vcpu_count", default 1, 1 => 64, "cpus", "CPU time a sandbox may use, in whole CPUs";
    MEM_MIB = "mem_mib", default 1024, 16 => 1_048_576, "MiB", "memory of a sandbox, page cache included";
    DISK_MIB = "disk_mib", default 10_240, 16 => 1_048_576, "MiB", "what a sandbox may write to its disk";
    PIDS_MAX = "pids_max", default 1024, 16 => 32_768, "processes", "processes and threads in a sandbox";
    NOFILE = "nofile", default 65_536, 64 => 1_048_576, "files", "open files per process";
    IO_MBPS = "io_mbps", default 0, 0 => 1_000_000, "MB/s", "what a sandbox may read from its disks, and what it may write to them, in a second (0: no limit)";
    IOPS = "iops", default 0, 0 => 10_000_000, "operations/s", "reads of a sandbox's disks in a second, and writes (0: no limit)";
    TIMEOUT_SECONDS = "timeout_seconds", default 30, 1 => 86_400, "s", "how long a command may run before its whole tree is killed";
    TTL_SECONDS = "ttl_seconds", default 600, 0 => 2_592_000, "s", "how long a sandbox lives before it is destroyed, unless touched by `keepalive` (0: until it is destroyed)";
    IDLE_SECONDS = "idle_seconds", default 0, 0 => 2_592_000, "s", "destroy a sandbox, or pause it (on_idle), that nobody has used for this long (0: never)";
    MAX_OUTPUT_BYTES = "max_output_bytes", default 1_048_576, 0 => 67_108_864, "bytes", "output returned per channel by a collected exec; the rest is counted and marked `truncated`";
    OUTPUT_RING_BYTES = "output_ring_bytes", default 1_048_576, 4096 => 67_108_864, "bytes", "output kept per channel inside the machine for readers that come back";
    ENV_FILE_BYTES = "env_file_bytes", default 131_072, 0 => 131_072, "bytes", "a file of variables for `--env-file`";
    ARGV_BYTES = "argv_bytes", default 2_097_152, 1 => 2_097_152, "bytes", "program, arguments and environment of one exec together; Linux counts eight bytes more for each of them";
    ENV_BYTES = "env_bytes", default 131_072, 1 => 131_072, "bytes", "variables of a template together";
    ARGUMENT_BYTES = "argument_bytes", default 131_071, 1 => 131_071, "bytes", "one argument, one variable with its name, or one shell script: what Linux takes";
    LIST_ENTRIES = "list_entries", default 1000, 1 => 10_000, "entries", "one page of a file listing or glob";
    PAGE_ITEMS = "page_items", default 100, 1 => 1000, "records", "one page of a list (`limit` of its request); a list is whole where no page is asked for";
    PATH_BYTES = "path_bytes", default 4096, 1 => 4096, "bytes", "the longest path";
    MAX_SANDBOXES = "max_sandboxes", default 1000, 1 => 100_000, "sandboxes", "sandboxes alive at once under one state directory";
    QUOTA_SANDBOXES = "quota_sandboxes", default 0, 0 => 10_000, "sandboxes", "sandboxes of one owner that have a machine (0: any number); `[quota]` in config.toml";
    QUOTA_CALLS_PER_MINUTE = "quota_calls_per_minute", default 0, 0 => 1_000_000, "calls", "calls of one owner in a minute that change or run something (0: any number)";
    QUOTA_MEM_MIB = "quota_mem_mib", default 0, 0 => 1_073_741_824, "MiB", "memory of all machines of one owner (0: any)";
    QUOTA_VCPUS = "quota_vcpus", default 0, 0 => 1_000_000, "CPUs", "CPUs of all machines of one owner (0: any)";
    QUOTA_DISK_MIB = "quota_disk_mib", default 0, 0 => 1_073_741_824, "MiB", "what the disks of one owner may grow to, those of stopped sandboxes included (0: any)";
    QUOTA_TEMPLATES = "quota_templates", default 0, 0 => 256, "templates", "templates of one project (0: any number)";
    QUOTA_TERMINALS = "quota_terminals", default 0, 0 => 256, "sessions", "terminal sessions of one project that are alive (0: any number)";
    QUOTA_ENVIRONMENTS = "quota_environments", default 0, 0 => 10_000, "environments", "environments that one project has built, imported, pulled or named; those of its templates' setups do not count (0: any number)";
    QUOTA_SECRETS = "quota_secrets", default 0, 0 => 10_000, "secrets", "secrets of one project (0: any number); those of its workspaces do not count";
    DORMANT_SECONDS = "dormant_seconds", default 60, 1 => 86_400, "s", "how long a stopped sandbox or workspace is unused until the daemon keeps only its row; the next use reads it again";
    MIN_FREE_DISK_MIB = "min_free_disk_mib", default 512, 0 => 1_048_576, "MiB", "space that must be free under the state directory before a sandbox is created; with less than half of it, machines are paused until it is free again (0: never)";
    DAEMON_IDLE_SECONDS = "daemon_idle_seconds", default 300, 1 => 2_592_000, "s", "a daemon started on demand leaves after having had nothing to look after for this long";
    GUEST_SILENCE_SECONDS = "guest_silence_seconds", default 30, 2 => 3600, "s", "how long a machine's guest may say nothing at all while a call waits for it, before its calls are answered `unavailable`";
    GUEST_CALL_SECONDS = "guest_call_seconds", default 600, 2 => 86_400, "s", "how long one call without a time limit of its own may get no sign of life from a guest that answers others, before it is answered `timeout`";
    DAEMON_SILENCE_SECONDS = "daemon_silence_seconds", default 15, 15 => 15, "s", "how long a daemon may leave a command's probe unanswered before the command fails";
    ENGINE_PROBE_SECONDS = "engine_probe_seconds", default 5, 5 => 5, "s", "how long a container engine may take to say that it is there (runtime `docker`)";
    ENGINE_CALL_SECONDS = "engine_call_seconds", default 60, 60 => 60, "s", "how long a container engine may take for one call, and for taking the next piece of an environment";
    ENGINE_IMPORT_SECONDS = "engine_import_seconds", default 900, 900 => 900, "s", "how long a container engine may take to make an image of an environment that it was sent";
    ENGINE_ANSWER_BYTES = "engine_answer_bytes", default 4_194_304, 4_194_304 => 4_194_304, "bytes", "one answer of a container engine";
    BUILD_FILE_BYTES = "build_file_bytes", default 1_048_576, 1_048_576 => 1_048_576, "bytes", "a Dockerfile, or a .dockerignore";
    BUILD_IGNORE_BYTES = "build_ignore_bytes", default 65_536, 65_536 => 65_536, "bytes", "the patterns of a .dockerignore together, without comments";
    BUILD_LINE_BYTES = "build_line_bytes", default 262_144, 262_144 => 262_144, "bytes", "one instruction of a Dockerfile with its continuations, or one here-document";
    BUILD_INSTRUCTIONS = "build_instructions", default 1000, 1000 => 1000, "instructions", "instructions of a Dockerfile";
    BUILD_CONTEXT_BYTES = "build_context_bytes", default 4_294_967_296, 4_294_967_296 => 4_294_967_296, "bytes", "the files that are sent with a build";
    BUILD_CONTEXTS = "build_contexts", default 16, 16 => 16, "contexts", "files that were sent for builds of one project, or of the host's users, and wait for them; after an hour they are gone";
    BUILD_CONTEXTS_BYTES = "build_contexts_bytes", default 8_589_934_592, 8_589_934_592 => 8_589_934_592, "bytes", "all of those together";
    BUILD_CONTEXT_ENTRIES = "build_context_entries", default 500_000, 500_000 => 500_000, "entries", "files and directories that are sent with a build";
    BUILD_STEP_SECONDS = "build_step_seconds", default 1800, 1 => 86_400, "s", "how long one step of a build may run";
    BUILD_MOUNT_BYTES = "build_mount_bytes", default 8_589_934_592, 8_589_934_592 => 8_589_934_592, "bytes", "what one cache mount of a build keeps; it counts for build_cache_bytes, too";
    BUILD_CACHE_BYTES = "build_cache_bytes", default 21_474_836_480, 21_474_836_480 => 21_474_836_480, "bytes", "what builds of one project, or of the host's users, keep for later ones; what was not used for longest goes first";
    ENVIRONMENT_BYTES = "environment_bytes", default 17_179_869_184, 17_179_869_184 => 17_179_869_184, "bytes", "the files of one environment";
    ENVIRONMENT_ENTRIES = "environment_entries", default 2_000_000, 2_000_000 => 2_000_000, "entries", "files and directories of one environment";
    HTTP_CONNECT_SECONDS = "http_connect_seconds", default 5, 5 => 5, "s", "how long a service of the `http` or `e2b` runtime may take to be connected to, and to say that it is there";
    HTTP_CALL_SECONDS = "http_call_seconds", default 60, 60 => 60, "s", "how long a service of the `http` or `e2b` runtime may take for one call, and for the next piece of an answer that comes in pieces; commands have their own time limit";
    HTTP_SPAWN_SECONDS = "http_spawn_seconds", default 900, 900 => 900, "s", "how long a service of the `http` or `e2b` runtime may take to make a machine; it may have to pull an image";
    HTTP_ANSWER_BYTES = "http_answer_bytes", default 67_108_864, 67_108_864 => 67_108_864, "bytes", "one answer of a service of the `http` or `e2b` runtime that is kept whole; files and live output come in pieces and have no bound";
    HTTP_BODY_BYTES = "http_body_bytes", default 16_777_216, 16_777_216 => 16_777_216, "bytes", "a file that is written through the `http` runtime: the protocol sends it in one piece";
    E2B_MESSAGE_BYTES = "e2b_message_bytes", default 4_194_304, 4_194_304 => 4_194_304, "bytes", "one message of a stream of the `e2b` runtime";
    E2B_TIMEOUT_SECONDS = "e2b_timeout_seconds", default 900, 60 => 86_400, "s", "how long a machine of the `e2b` runtime lives at its service when no daemon prolongs it; `timeout_seconds` of `[e2b]` in config.toml";
    E2B_PROCESSES = "e2b_processes", default 256, 256 => 256, "processes", "background processes and terminals of one machine of the `e2b` runtime that are remembered; the oldest that has ended is forgotten first";
    FORK_COUNT = "fork_count", default 1, 1 => 64, "copies", "live copies made by one fork";
    POOL_MEM_MIB = "pool_mem_mib", default 4096, 0 => 1_048_576, "MiB", "memory of all machines that wait ready in the warm pool";
    SPARE_SECONDS = "spare_seconds", default 60, 0 => 3600, "s", "how long a machine of the kind that two one-shots in a row have used waits for the next (0: none does)";
    POOL_READY = "pool_ready", default 2, 0 => 64, "machines", "machines that wait ready per pool in config.toml";
    TEMPLATES = "templates", default 256, 256 => 256, "templates", "templates under one state directory";
    TEMPLATE_NAME_CHARS = "template_name_chars", default 63, 1 => 63, "characters", "the name of a template";
    TEMPLATE_SETUP_COMMANDS = "template_setup_commands", default 64, 0 => 64, "commands", "setup commands of a template";
    TEMPLATE_SETUP_BYTES = "template_setup_bytes", default 65_536, 1 => 65_536, "bytes", "one setup command of a template";
    TEMPLATE_ALLOWED_HOSTS = "template_allowed_hosts", default 64, 0 => 64, "hosts", "hosts that a template allows";
    TEMPLATE_POOL_SIZE = "template_pool_size", default 0, 0 => 64, "machines", "machines that wait ready for a template";
    WORKSPACE_TTL_SECONDS = "workspace_ttl_seconds", default 0, 0 => 31_536_000, "s", "how long a workspace lives before it is deleted (0: until it is deleted)";
    NAME_CHARS = "name_chars", default 120, 1 => 120, "characters", "the name of a workspace";
    LABELS = "labels", default 32, 0 => 32, "labels", "labels of a workspace or a sandbox";
    LABEL_KEY_CHARS = "label_key_chars", default 63, 1 => 63, "characters", "the key of a label";
    LABEL_VALUE_CHARS = "label_value_chars", default 255, 0 => 255, "characters", "the value of a label";
    SECRETS = "secrets", default 64, 0 => 64, "secrets", "secrets of a workspace";
    SECRET_BYTES = "secret_bytes", default 65_536, 1 => 65_536, "bytes", "the value of a secret";
    SECRETS_BYTES = "secrets_bytes", default 262_144, 262_144 => 262_144, "bytes", "all values of the secrets of a workspace together";
    SECRET_NAME_CHARS = "secret_name_chars", default 64, 1 => 64, "characters", "the name of a secret";
    SECRET_HOSTS = "secret_hosts", default 32, 0 => 32, "hosts", "hosts that a secret is bound to";
    SECRET_HOST_KEYS = "secret_host_keys", default 16, 1 => 16, "keys", "host keys of one host that a key of SSH is bound to";
    KNOWN_HOSTS_BYTES = "known_hosts_bytes", default 262_144, 1 => 262_144, "bytes", "the file of known hosts that is given with a key of SSH";
    AGENT_MESSAGE_BYTES = "agent_message_bytes", default 262_144, 262_144 => 262_144, "bytes", "a message to the SSH agent of a sandbox; a longer one ends the connection";
    BORDER_BODY_BYTES = "border_body_bytes", default 1_048_576, 1_048_576 => 1_048_576, "bytes", "the body of a request that a secret is put into, or that is signed again; a larger one is refused";
    FILE_TEXT_BYTES = "file_text_bytes", default 65_536, 1 => 1_048_576, "bytes", "what `file read` and `disk read` return when not told otherwise";
    FILE_WRITE_BYTES = "file_write_bytes", default 1_048_576, 0 => 1_048_576, "bytes", "the text of one `file write`";
    LIST_ENTRIES_MAX = "list_entries_max", default 10_000, 1 => 10_000, "entries", "paths in one answer of `file list` or `disk list`";
    PATCH_BYTES = "patch_bytes", default 1_048_576, 1 => 1_048_576, "bytes", "the text of one patch";
    PATCH_FILES = "patch_files", default 4096, 4096 => 4096, "files", "files in one patch";
    PATCH_HUNKS = "patch_hunks", default 65_536, 65_536 => 65_536, "hunks", "hunks in one patch, all files together";
    PATCHED_BYTES = "patched_bytes", default 67_108_864, 67_108_864 => 67_108_864, "bytes", "a file that a patch or an edit changes, before and after";
    DIFF_BYTES = "diff_bytes", default 262_144, 0 => 16_777_216, "bytes", "patch text in one diff";
    DIFF_FILE_BYTES = "diff_file_bytes", default 4_194_304, 4_194_304 => 4_194_304, "bytes", "a file that a diff compares line by line; of a larger one it says that it changed";
    DIFF_ENTRIES = "diff_entries", default 10_000, 1 => 10_000, "entries", "changed paths named in one diff";
    SNAPSHOTS = "snapshots", default 256, 1 => 256, "snapshots", "named snapshots of a workspace";
    SNAPSHOT_NAME_CHARS = "snapshot_name_chars", default 64, 1 => 64, "characters", "the name of a snapshot";
    CHECKPOINTS = "checkpoints", default 20, 1 => 20, "checkpoints", "states of a workspace kept for `undo`; the oldest is dropped for a new one";
    SEED_BYTES = "seed_bytes", default 68_719_476_736, 1 => 68_719_476_736, "bytes", "content of a seed or a pushed tree";
    EXPORT_BYTES = "export_bytes", default 17_179_869_184, 1 => 1_099_511_627_776, "bytes", "content of one export, disk export or copy out of a machine, holes included";
    SEED_ENTRIES = "seed_entries", default 2_000_000, 1 => 2_000_000, "entries", "files and directories of a seed or a pushed tree";
    SERVICES = "services", default 32, 1 => 32, "services", "services of a workspace; the one that ended first is forgotten for a new one";
    PUBLISHED_PORTS = "published_ports", default 16, 1 => 16, "ports", "ports one service publishes";
    READY_TIMEOUT_SECONDS = "ready_timeout_seconds", default 30, 1 => 3600, "s", "how long a service may take to become ready";
    READY_INTERVAL_MS = "ready_interval_ms", default 500, 10 => 60_000, "ms", "the longest pause between two probes of a service";
    SERVICE_TAIL_LINES = "service_tail_lines", default 200, 1 => 100_000, "lines", "lines of a service's log in one answer";
    SHELLS = "shells", default 16, 1 => 16, "shells", "open shells of a workspace";
    SHELL_CHARS = "shell_chars", default 65_536, 1 => 1_048_576, "characters", "output in one read of a shell";
    IDEMPOTENCY_KEYS = "idempotency_keys", default 10_000, 1 => 10_000, "keys", "keys of requests that are remembered of one project, or of one user of the host; the oldest are forgotten first";
    IDEMPOTENCY_SECONDS = "idempotency_seconds", default 86_400, 1 => 86_400, "s", "how long the key of a request and its answer are remembered";
    IDEMPOTENCY_KEY_BYTES = "idempotency_key_bytes", default 255, 1 => 255, "bytes", "an Idempotency-Key";
    IDEMPOTENCY_BYTES = "idempotency_bytes", default 16_777_216, 16_777_216 => 16_777_216, "bytes", "all answers that are remembered for keys of one project, or of one user of the host; the oldest are forgotten first";
    IDEMPOTENCY_ANSWER_BYTES = "idempotency_answer_bytes", default 262_144, 0 => 262_144, "bytes", "an answer that is remembered for its key";
    SHELL_COLS = "shell_cols", default 120, 2 => 1000, "columns", "the width of a shell of a workspace";
    SHELL_ROWS = "shell_rows", default 30, 1 => 500, "rows", "the height of a shell of a workspace";
    SHELL_IDLE_MS = "shell_idle_ms", default 300, 0 => 60_000, "ms", "the silence after which a read of a shell answers";
    HISTORY_COMMANDS = "history_commands", default 1000, 1 => 1000, "commands", "commands of a workspace that are remembered";
    HISTORY_OUTPUT_BYTES = "history_output_bytes", default 65_536, 1 => 65_536, "bytes", "output per channel remembered of a command";
    TERMINALS = "terminals", default 256, 1 => 256, "sessions", "terminal sessions alive at once under one state directory";
    TERMINALS_KEPT = "terminals_kept", default 200, 1 => 1000, "sessions", "terminal sessions that have ended and are still known; the oldest are forgotten with their files";
    TERMINAL_TIMEOUT_SECONDS = "terminal_timeout_seconds", default 30, 0 => 3600, "s", "how long one request waits on a terminal; what runs goes on";
    TERMINAL_QUIESCENCE_MS = "terminal_quiescence_ms", default 100, 10 => 60_000, "ms", "silence after which a look is taken at a program without marks";
    TERMINAL_OUTPUT_BYTES = "terminal_output_bytes", default 16_384, 256 => 1_048_576, "bytes", "text in one answer of a terminal; the middle is left out when there is more";
    TERMINAL_INPUT_BYTES = "terminal_input_bytes", default 1_048_576, 1_048_576 => 1_048_576, "bytes", "what one request types into a terminal";
    TERMINAL_PASSWORD_BYTES = "terminal_password_bytes", default 4096, 1 => 4096, "bytes", "a secret that is typed into a terminal";
    TERMINAL_PATTERNS = "terminal_patterns", default 32, 1 => 32, "patterns", "patterns of one `expect`";
    TERMINAL_PATTERN_BYTES = "terminal_pattern_bytes", default 4096, 1 => 4096, "bytes", "one pattern of an `expect` or of a prompt";
    TERMINAL_WAITERS = "terminal_waiters", default 64, 64 => 64, "requests", "requests that wait on one terminal session";
    TERMINAL_COLS = "terminal_cols", default 80, 2 => 1000, "columns", "the width of a terminal session";
    TERMINAL_ROWS = "terminal_rows", default 24, 1 => 500, "rows", "the height of a terminal session";
    TERMINAL_DESCRIPTION_CHARS = "terminal_description_chars", default 1000, 0 => 1000, "characters", "the description of a terminal session";
    TERMINAL_TRANSCRIPT_BYTES = "terminal_transcript_bytes", default 67_108_864, 1_048_576 => 1_073_741_824, "bytes", "raw output of a session kept on disk; the oldest goes first";
    TERMINAL_SCROLLBACK_LINES = "terminal_scrollback_lines", default 200, 0 => 10_000, "lines", "rows in one answer of `scrollback` (0: all)";
    MCP_OUTPUT_BYTES = "mcp_output_bytes", default 16_384, 256 => 1_048_576, "bytes", "text in one answer of an MCP tool; the rest is a resource";
    MCP_OUTPUTS_BYTES = "mcp_outputs_bytes", default 8_388_608, 8_388_608 => 8_388_608, "bytes", "outputs that did not fit an answer, kept by an MCP server; the oldest goes first, and at most a quarter is of one channel";
    MCP_RESOURCE_BYTES = "mcp_resource_bytes", default 65_536, 65_536 => 65_536, "bytes", "text in one page of an MCP resource";
    MCP_RECORDING_BYTES = "mcp_recording_bytes", default 16_777_216, 16_777_216 => 16_777_216, "bytes", "the recording of a terminal session that is read as an MCP resource";
    MCP_MESSAGE_BYTES = "mcp_message_bytes", default 16_777_216, 16_777_216 => 16_777_216, "bytes", "one message to an MCP server on its standard input";
    MCP_BODY_BYTES = "mcp_body_bytes", default 4_194_304, 4_194_304 => 4_194_304, "bytes", "one request to an MCP server over HTTP";
    MCP_APPROVAL_SECONDS = "mcp_approval_seconds", default 600, 600 => 600, "s", "how long a person may think about a question of an MCP tool";
    POLICIES = "policies", default 256, 1 => 256, "policies", "files of policies that are looked at";
    POLICY_BYTES = "policy_bytes", default 262_144, 1 => 262_144, "bytes", "the text of a policy";
    EGRESS_CONNECTIONS = "egress_connections", default 1024, 1 => 65_536, "connections", "open connections of a sandbox with a network, of a policy that says nothing";
    EGRESS_EXCHANGE_SECONDS = "egress_exchange_seconds", default 120, 120 => 120, "s", "how long an exchange of UDP or ICMP without a datagram stays open; it counts as a connection";
    EGRESS_QUESTIONS_PER_SECOND = "egress_questions_per_second", default 200, 200 => 200, "names", "names that a sandbox with a network may ask its gateway for in a second; further ones are answered SERVFAIL and logged as `too_many_questions`";
    DECISION_LOG_BYTES = "decision_log_bytes", default 16_777_216, 16_777_216 => 16_777_216, "bytes", "decisions about the traffic of a sandbox that are written down; further ones are counted";
    DECISION_LOGS = "decision_logs", default 200, 200 => 200, "logs", "decisions about the traffic of sandboxes that are gone, kept by sandbox; the oldest go first";
    CALL_FILES = "call_files", default 64, 0 => 1024, "files", "files that a typed call brings along";
    CALL_FILE_BYTES = "call_file_bytes", default 1_048_576, 0 => 8_388_608, "bytes", "one file that a typed call brings along";
    CALL_ALL_FILES_BYTES = "call_all_files_bytes", default 8_388_608, 0 => 8_388_608, "bytes", "all files that a typed call brings along";
    CALL_OUTPUT_BYTES = "call_output_bytes", default 262_144, 0 => 4_194_304, "bytes", "standard output in the answer of a typed call, and standard error";
    CALL_TIMEOUT_SECONDS = "call_timeout_seconds", default 20, 1 => 3600, "s", "how long the command of a typed call may run that says nothing";
    CALL_MAX_TIMEOUT_SECONDS = "call_max_timeout_seconds", default 600, 1 => 86_400, "s", "the longest time that a typed call may ask for";
    CALL_OUTPUT_FILES = "call_output_files", default 16, 0 => 256, "files", "files that a typed call gives back";
    CALL_OUTPUT_FILE_BYTES = "call_output_file_bytes", default 4_194_304, 0 => 8_388_608, "bytes", "one file that a typed call gives back";
    CALL_TTL_SECONDS = "call_ttl_seconds", default 3600, 60 => 2_592_000, "s", "how long the state of a typed call is kept that says nothing";
    CALL_MAX_TTL_SECONDS = "call_max_ttl_seconds", default 604_800, 60 => 2_592_000, "s", "the longest time that a typed call may have its state kept";
    CALL_VCPU_COUNT = "call_vcpu_count", default 4, 1 => 64, "cpus", "the most CPUs that a typed call may ask for";
    CALL_MEM_MIB = "call_mem_mib", default 8192, 16 => 1_048_576, "MiB", "the most memory that a typed call may ask for";
    CALL_DISK_MIB = "call_disk_mib", default 20_480, 16 => 1_048_576, "MiB", "the largest disk that a typed call may ask for";
    AUDIT_KEEP_DAYS = "audit_keep_days", default 365, 1 => 36_500, "days", "how long calls stay in the audit log; whole segments go, and a signed note stays";
    AUDIT_MAX_MIB = "audit_max_mib", default 256, 32 => 1_048_576, "MiB", "the audit log; the oldest segments go first, and a signed note stays";
    AUDIT_LIST = "audit_list", default 50, 1 => 1000, "entries", "calls in one answer of `audit list`";
    PROVIDER_BODY_BYTES = "provider_body_bytes", default 33_554_432, 33_554_432 => 33_554_432, "bytes", "a request of `serve --provider`; a file's content is in it";
    PROVIDER_ENTRIES = "provider_entries", default 100_000, 1 => 100_000, "entries", "paths in one answer of `serve --provider`, which has no pages";
    GRPC_MESSAGE_BYTES = "grpc_message_bytes", default 67_108_864, 67_108_864 => 67_108_864, "bytes", "one message of gRPC, and a file that `ReadFile` returns; streams of files have no bound";
    GRPC_OUTPUT_BYTES = "grpc_output_bytes", default 16_777_216, 16_777_216 => 16_777_216, "bytes", "output per channel that `Exec` of gRPC returns; the rest is marked `truncated`";
    GRPC_ENTRIES = "grpc_entries", default 100_000, 1 => 100_000, "entries", "paths in one answer of `ListDir` of gRPC, which has no pages";
    GRPC_STREAMS = "grpc_streams", default 1024, 1024 => 1024, "calls", "open calls of one connection of gRPC; further ones wait";
    PROJECT_CHARS = "project_chars", default 20, 1 => 20, "characters", "the name of a project";
    KEYS = "keys", default 10_000, 10_000 => 10_000, "keys", "keys under one state directory, revoked and expired ones included; those that ended first are forgotten for new ones";
    KEY_SCOPES = "key_scopes", default 64, 1 => 64, "scopes", "scopes of one key";
    KEY_POLICIES = "key_policies", default 64, 1 => 64, "policies", "policies that one key names as its only ones";
    KEY_EXPIRES_SECONDS = "key_expires_seconds", default 2_592_000, 1 => 315_360_000, "s", "how long a key is good for that says how long";
    KEY_CALLS_PER_MINUTE = "key_calls_per_minute", default 0, 0 => 1_000_000, "calls", "calls that one key may make in a minute, those that only look included (0: any number)";
    EVENTS_KEPT = "events_kept", default 10_000, 100 => 1_000_000, "events", "events that can be read again; the oldest are forgotten, and who asks for them is told; `[events]` in config.toml";
    WEBHOOK_TRIES = "webhook_tries", default 20, 1 => 1000, "tries", "how often an event is sent to the webhook before it is passed over; `tries` of `[webhook]` in config.toml";
    WEBHOOK_SECONDS = "webhook_seconds", default 10, 1 => 60, "s", "how long a webhook may take to answer; `seconds` of `[webhook]` in config.toml";
    WEBHOOK_PAUSE_SECONDS = "webhook_pause_seconds", default 300, 300 => 300, "s", "the longest pause between two tries of a webhook; the first is one second, and each is twice the one before";
    WEBHOOK_SECRET_BYTES = "webhook_secret_bytes", default 4096, 16 => 4096, "bytes", "the secret that signs what is sent to the webhook";
    OTLP_SECONDS = "otlp_seconds", default 10, 1 => 60, "s", "how long a collector may take to answer; `seconds` of `[otlp]` in config.toml";
    OTLP_QUEUE = "otlp_queue", default 2048, 1 => 65_536, "spans", "spans of calls that wait for the collector; the oldest go for new ones and are counted; `queue` of `[otlp]` in config.toml";
    OTLP_BATCH = "otlp_batch", default 512, 512 => 512, "spans", "spans in one request to the collector";
    OTLP_INTERVAL_SECONDS = "otlp_interval_seconds", default 30, 1 => 3600, "s", "how often measurements are sent to the collector; `interval_seconds` of `[otlp]` in config.toml";
    OTLP_HEADERS_BYTES = "otlp_headers_bytes", default 16_384, 0 => 16_384, "bytes", "the file of headers for the collector";
    LISTEN_CONNECTIONS = "listen_connections", default 512, 1 => 16_384, "connections", "open connections at the address of `[listen]` that have shown a good key; one project has at most three quarters of them, and where the daemon may open few files, all of them have at most a quarter of those";
    LISTEN_STRANGERS = "listen_strangers", default 512, 2 => 16_384, "connections", "open connections at the address of `[listen]` that have shown no good key, for at most `listen_head_seconds`; those of one address (of IPv6: one /64) have at most half of them, and the oldest goes for a new one";
    LISTEN_HEAD_SECONDS = "listen_head_seconds", default 15, 1 => 600, "s", "how long a caller of `[listen]` may take for the handshake of TLS, for the head of each request, and until the first good key";
    LISTEN_BODY_SECONDS = "listen_body_seconds", default 30, 1 => 3600, "s", "how long a request of `[listen]` may pause in its body; live sessions may pause as long as they like";
    LISTEN_HEAD_BYTES = "listen_head_bytes", default 65_536, 65_536 => 65_536, "bytes", "the head of a request of `[listen]`, all headers together";
    SOCKET_IDLE_CONNECTIONS = "socket_idle_connections", default 4096, 4096 => 4096, "connections", "connections of the local socket on which nothing is being served, at most a quarter of the descriptors that the daemon may have; the one that is idle longest goes for a new one";
    AUDIT_STRANGERS = "audit_strangers", default 1024, 1024 => 1024, "addresses", "addresses whose wrong keys are told apart in the audit log in a minute, in one entry each; further ones share one";
    REQUEST_BODY_BYTES = "request_body_bytes", default 2_097_152, 1024 => 16_777_216, "bytes", "a JSON request";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_own_bounds() {
        for limit in TABLE {
            assert_eq!(
                limit.resolve(None).unwrap(),
                limit.default,
                "{}",
                limit.name
            );
        }
    }

    #[test]
    fn a_refusal_names_the_limit() {
        let error = MEM_MIB.resolve(Some(1)).unwrap_err();
        assert!(error.message.contains("mem_mib is 1"), "{error}");
    }
}
