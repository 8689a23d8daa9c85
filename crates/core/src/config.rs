//! The operator's settings: one TOML file, `config.toml`, in the state directory.

mod gvisor;
mod listen;
mod otlp;
mod qemu;
mod quota;
mod registries;
mod webhook;

pub use gvisor::GvisorConfig;
pub use listen::{Certificate, ListenConfig};
pub use otlp::OtlpConfig;
pub use qemu::QemuConfig;
pub use quota::QuotaConfig;
pub use registries::{ProjectRegistries, RegistriesConfig};
pub use webhook::{EventsConfig, WebhookConfig};

use crate::{Accel, Error, Isolation, Size, limits};
use serde::{Deserialize, Serialize};

/// Everything that can be set. Unknown keys are refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// No sandbox is ever made with less than this.
    pub min_isolation: Isolation,
    /// Runtime used when a call names none; `auto` picks the strongest that works.
    pub runtime: String,
    /// What virtual machines run on when a call does not say.
    pub accel: Accel,
    pub max_sandboxes: u64,
    /// How long a stopped sandbox is unused until only its row is kept.
    pub dormant_seconds: u64,
    pub min_free_disk_mib: u64,
    pub daemon_idle_seconds: u64,
    /// How long a guest may say nothing at all to those who wait for it.
    pub guest_silence_seconds: u64,
    /// How long a guest may say nothing about one call.
    pub guest_call_seconds: u64,
    /// Memory of all machines that wait ready.
    pub pool_mem_mib: u64,
    /// How long a machine waits for the next one-shot of its kind; 0: none does.
    pub spare_seconds: u64,
    /// Machines that wait ready: `[[pool]]`, once for each kind.
    pub pool: Vec<PoolKind>,
    /// Limits of a sandbox whose request names none.
    pub defaults: Defaults,
    pub terminal: TerminalConfig,
    pub audit: AuditConfig,
    pub qemu: QemuConfig,
    pub gvisor: GvisorConfig,
    pub docker: DockerConfig,
    pub http: HttpConfig,
    pub e2b: E2bConfig,
    pub grpc: GrpcConfig,
    pub listen: ListenConfig,
    pub redaction: RedactionConfig,
    pub quota: QuotaConfig,
    pub registries: RegistriesConfig,
    pub events: EventsConfig,
    pub webhook: WebhookConfig,
    pub otlp: OtlpConfig,
}

/// The container engine that the `docker` runtime uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DockerConfig {
    /// Its socket; looked for when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<std::path::PathBuf>,
    /// What makes its containers (`runc`, `crun`, `runsc`); what it takes by itself when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
}

/// The service that the `http` runtime uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// Where it is: `http://` or `https://`, a host, a port and perhaps a path. Without it there is
    /// no such runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A file with the key that is sent as `X-API-Key`. The key itself is never in this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<std::path::PathBuf>,
    /// Certificates in PEM that the service's own is checked against, in place of those that this
    /// host trusts. For `https://` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<std::path::PathBuf>,
}

/// The service that the `e2b` runtime uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct E2bConfig {
    /// Where its REST API is: `https://`, or `http://` on this host. Without it there is no such
    /// runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_url: Option<String>,
    /// Where the agents of all its machines are, told apart by headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_url: Option<String>,
    /// Instead of it: the name below which each agent has a host, `49983-ID.DOMAIN`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// A file with the key that is sent as `X-API-Key`. The key itself is never in this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<std::path::PathBuf>,
    /// What stands around its machines. Nobody here can see it: taken for `none` when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// How long a machine lives there when no daemon prolongs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// Templates of the service by the names of environments; others are named as they are.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub templates: std::collections::BTreeMap<String, String>,
}

/// gRPC: what its callers get that say nothing, and where others than local ones reach it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GrpcConfig {
    /// What `CreateSandbox` starts from that names no template.
    pub environment: String,
    /// The policy of the network of its sandboxes; none have a network when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// An address and a port for callers of other hosts; only the local socket when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<std::net::SocketAddr>,
    /// The certificate of this host and those it was signed with, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<std::path::PathBuf>,
    /// The private key of the certificate, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<std::path::PathBuf>,
    /// Certificates in PEM that those of callers must be signed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca_file: Option<std::path::PathBuf>,
}

impl Default for GrpcConfig {
    fn default() -> GrpcConfig {
        GrpcConfig {
            environment: crate::terminal::DEFAULT_ENVIRONMENT.to_string(),
            policy: None,
            listen: None,
            cert_file: None,
            key_file: None,
            client_ca_file: None,
        }
    }
}

impl GrpcConfig {
    /// Refuses an address whose callers nobody could tell apart from strangers.
    fn check(&self) -> Result<(), Error> {
        let files = [
            ("cert_file", &self.cert_file),
            ("key_file", &self.key_file),
            ("client_ca_file", &self.client_ca_file),
        ];
        for (name, file) in files {
            if file.is_some() != self.listen.is_some() {
                let message = match file {
                    None => format!("config.toml: [grpc] listen is set, and {name} is not"),
                    Some(_) => format!("config.toml: [grpc] {name} is set, and listen is not"),
                };
                return Err(Error::invalid(message).hint(
                    "an address is served with mutual TLS only: set listen, cert_file, key_file \
                     and client_ca_file together",
                ));
            }
        }
        Ok(())
    }
}

/// The audit log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// How long calls stay in it.
    pub keep_days: u64,
    /// How long it may be.
    pub max_mib: u64,
}

impl Default for AuditConfig {
    fn default() -> AuditConfig {
        AuditConfig {
            keep_days: limits::AUDIT_KEEP_DAYS.default,
            max_mib: limits::AUDIT_MAX_MIB.default,
        }
    }
}

/// What is taken out of what is shown, beside the values of secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedactionConfig {
    /// Well-known credentials in what workspaces, terminals and typed calls show.
    pub patterns: bool,
    /// Kinds of them that are left alone.
    pub off: Vec<String>,
    /// Also in what commands of plain sandboxes show.
    pub commands: bool,
}

impl Default for RedactionConfig {
    fn default() -> RedactionConfig {
        RedactionConfig {
            patterns: true,
            off: Vec::new(),
            commands: false,
        }
    }
}

/// Terminal sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TerminalConfig {
    /// Of the workspace that sessions without a place of their own share.
    pub environment: String,
    /// Let callers have sessions on the host itself, with no isolation.
    pub host: bool,
    /// Sessions that have ended and are still known.
    pub kept: u64,
}

impl Default for TerminalConfig {
    fn default() -> TerminalConfig {
        TerminalConfig {
            environment: crate::terminal::DEFAULT_ENVIRONMENT.to_string(),
            host: false,
            kept: limits::TERMINALS_KEPT.default,
        }
    }
}

/// A kind of machine that waits ready, and how many of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolKind {
    pub environment: String,
    /// The configured runtime when missing.
    #[serde(default)]
    pub runtime: Option<String>,
    #[serde(default)]
    pub accel: Accel,
    /// Sizes are the defaults when missing, as in a call.
    #[serde(flatten)]
    pub size: Size,
    #[serde(default = "ready")]
    pub ready: u64,
}

fn ready() -> u64 {
    limits::POOL_READY.default
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Defaults {
    pub vcpu_count: u64,
    pub mem_mib: u64,
    pub disk_mib: u64,
    pub pids_max: u64,
    pub nofile: u64,
    pub io_mbps: u64,
    pub iops: u64,
    pub ttl_seconds: u64,
    pub idle_seconds: u64,
    pub timeout_seconds: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            // Host compatibility has its own switch in every call; this is the operator's floor above it.
            min_isolation: Isolation::None,
            runtime: "auto".to_string(),
            accel: Accel::Auto,
            max_sandboxes: limits::MAX_SANDBOXES.default,
            dormant_seconds: limits::DORMANT_SECONDS.default,
            min_free_disk_mib: limits::MIN_FREE_DISK_MIB.default,
            daemon_idle_seconds: limits::DAEMON_IDLE_SECONDS.default,
            guest_silence_seconds: limits::GUEST_SILENCE_SECONDS.default,
            guest_call_seconds: limits::GUEST_CALL_SECONDS.default,
            pool_mem_mib: limits::POOL_MEM_MIB.default,
            spare_seconds: limits::SPARE_SECONDS.default,
            pool: Vec::new(),
            defaults: Defaults::default(),
            terminal: TerminalConfig::default(),
            audit: AuditConfig::default(),
            qemu: QemuConfig::default(),
            gvisor: GvisorConfig::default(),
            docker: DockerConfig::default(),
            http: HttpConfig::default(),
            e2b: E2bConfig::default(),
            grpc: GrpcConfig::default(),
            listen: ListenConfig::default(),
            redaction: RedactionConfig::default(),
            quota: QuotaConfig::default(),
            registries: RegistriesConfig::default(),
            events: EventsConfig::default(),
            webhook: WebhookConfig::default(),
            otlp: OtlpConfig::default(),
        }
    }
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults {
            vcpu_count: limits::VCPU_COUNT.default,
            mem_mib: limits::MEM_MIB.default,
            disk_mib: limits::DISK_MIB.default,
            pids_max: limits::PIDS_MAX.default,
            nofile: limits::NOFILE.default,
            io_mbps: limits::IO_MBPS.default,
            iops: limits::IOPS.default,
            ttl_seconds: limits::TTL_SECONDS.default,
            idle_seconds: limits::IDLE_SECONDS.default,
            timeout_seconds: limits::TIMEOUT_SECONDS.default,
        }
    }
}

impl Config {
    /// Reads the text of `config.toml` and checks every number.
    pub fn parse(text: &str) -> Result<Config, Error> {
        let config: Config = toml::from_str(text)
            .map_err(|error| Error::invalid(format!("config.toml: {}", error.message())))?;
        for (limit, value) in [
            (limits::MAX_SANDBOXES, config.max_sandboxes),
            (limits::DORMANT_SECONDS, config.dormant_seconds),
            (limits::MIN_FREE_DISK_MIB, config.min_free_disk_mib),
            (limits::DAEMON_IDLE_SECONDS, config.daemon_idle_seconds),
            (limits::GUEST_SILENCE_SECONDS, config.guest_silence_seconds),
            (limits::GUEST_CALL_SECONDS, config.guest_call_seconds),
            (limits::POOL_MEM_MIB, config.pool_mem_mib),
            (limits::SPARE_SECONDS, config.spare_seconds),
            (limits::TERMINALS_KEPT, config.terminal.kept),
            (limits::AUDIT_KEEP_DAYS, config.audit.keep_days),
            (limits::AUDIT_MAX_MIB, config.audit.max_mib),
            (limits::EVENTS_KEPT, config.events.kept),
            (limits::WEBHOOK_TRIES, config.webhook.tries),
            (limits::WEBHOOK_SECONDS, config.webhook.seconds),
            (limits::OTLP_SECONDS, config.otlp.seconds),
            (limits::OTLP_QUEUE, config.otlp.queue),
            (limits::OTLP_INTERVAL_SECONDS, config.otlp.interval_seconds),
            (limits::LISTEN_CONNECTIONS, config.listen.connections),
            (limits::LISTEN_STRANGERS, config.listen.strangers),
            (limits::LISTEN_HEAD_SECONDS, config.listen.head_seconds),
            (limits::LISTEN_BODY_SECONDS, config.listen.body_seconds),
            (limits::VCPU_COUNT, config.defaults.vcpu_count),
            (limits::MEM_MIB, config.defaults.mem_mib),
            (limits::DISK_MIB, config.defaults.disk_mib),
            (limits::PIDS_MAX, config.defaults.pids_max),
            (limits::NOFILE, config.defaults.nofile),
            (limits::IO_MBPS, config.defaults.io_mbps),
            (limits::IOPS, config.defaults.iops),
            (limits::TTL_SECONDS, config.defaults.ttl_seconds),
            (limits::IDLE_SECONDS, config.defaults.idle_seconds),
            (limits::TIMEOUT_SECONDS, config.defaults.timeout_seconds),
        ]
        .into_iter()
        .chain(
            config
                .pool
                .iter()
                .map(|kind| (limits::POOL_READY, kind.ready)),
        )
        .chain(
            config
                .e2b
                .timeout_seconds
                .map(|seconds| (limits::E2B_TIMEOUT_SECONDS, seconds)),
        ) {
            limit.resolve(Some(value)).map_err(|error| Error {
                message: format!("config.toml: {}", error.message),
                ..error
            })?;
        }
        config.quota.check().map_err(|error| Error {
            message: format!("config.toml: {}", error.message),
            ..error
        })?;
        let socket = config.docker.socket.as_ref();
        if socket.is_some_and(|socket| !socket.is_absolute()) {
            return Err(Error::invalid(
                "config.toml: [docker] socket must be the absolute path of a socket",
            ));
        }
        let files = [
            ("qemu", "program", &config.qemu.program),
            ("qemu", "kernel", &config.qemu.kernel),
            ("qemu", "modules", &config.qemu.modules),
            ("qemu", "kernel_package", &config.qemu.kernel_package),
            ("gvisor", "program", &config.gvisor.program),
            ("http", "key_file", &config.http.key_file),
            ("http", "ca_file", &config.http.ca_file),
            ("e2b", "key_file", &config.e2b.key_file),
            ("grpc", "cert_file", &config.grpc.cert_file),
            ("grpc", "key_file", &config.grpc.key_file),
            ("grpc", "client_ca_file", &config.grpc.client_ca_file),
            ("webhook", "secret_file", &config.webhook.secret_file),
            ("webhook", "ca_file", &config.webhook.ca_file),
            ("otlp", "headers_file", &config.otlp.headers_file),
            ("otlp", "ca_file", &config.otlp.ca_file),
        ];
        for (section, name, file) in files {
            if file.as_ref().is_some_and(|file| !file.is_absolute()) {
                return Err(Error::invalid(format!(
                    "config.toml: [{section}] {name} must be the absolute path of a file",
                )));
            }
        }
        config.qemu.check()?;
        config.grpc.check()?;
        config.listen.check()?;
        config.registries.check()?;
        config.webhook.check()?;
        config.otlp.check()?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_defaults() {
        assert_eq!(Config::parse("").unwrap(), Config::default());
    }

    #[test]
    fn a_kernel_is_named_once_and_whole() {
        let parse = |text: &str| Config::parse(&format!("[qemu]\n{text}"));
        let both = parse("kernel = \"/boot/vmlinuz\"\nmodules = \"/lib/modules/6\"").unwrap();
        assert_eq!(
            both.qemu.modules.as_deref(),
            Some("/lib/modules/6".as_ref())
        );
        assert!(parse("mirror = \"http://10.0.0.1:3142/debian\"").is_ok());
        for bad in [
            "kernel = \"/boot/vmlinuz\"",
            "modules = \"/lib/modules/6\"",
            "kernel = \"/k\"\nmodules = \"/m\"\nkernel_package = \"/k.deb\"",
            "kernel_package = \"k.deb\"",
            "kernel_package = \"/k.deb\"\nkernel_artifact = \"r/k@sha256:0\"",
            "kernel_artifact = \"registry.example/k:latest\"",
            "kernel_artifact = \"registry.example/k@sha256:12\"",
            "program = \"qemu\"",
            "mirror = \"ftp://x\"",
            "mirror = \"http://\"",
        ] {
            let error = parse(bad).unwrap_err();
            assert!(error.message.contains("[qemu]"), "{bad}: {error}");
        }
    }

    #[test]
    fn an_engine_is_named_by_its_path() {
        let text = "[docker]\nsocket = \"/run/podman/podman.sock\"\nruntime = \"runsc\"";
        let docker = Config::parse(text).unwrap().docker;
        assert_eq!(docker.runtime.as_deref(), Some("runsc"));
        assert!(Config::parse("[docker]\nsocket = \"unix:///x\"").is_err());
    }

    #[test]
    fn a_service_has_an_address_a_key_and_templates() {
        let text = "[e2b]\napi_url = \"https://api.e2b.app\"\ndomain = \"e2b.app\"\n\
                    key_file = \"/etc/key\"\nisolation = \"vm\"\ntemplates.\"debian:12\" = \"base\"";
        let e2b = Config::parse(text).unwrap().e2b;
        assert_eq!(e2b.isolation, Some(Isolation::Vm));
        assert_eq!(e2b.templates["debian:12"], "base");
        assert!(Config::parse("[e2b]\nkey_file = \"key\"").is_err());
        assert!(Config::parse("[e2b]\ntimeout_seconds = 5").is_err());
        assert!(Config::parse("[e2b]\nkey = \"itself\"").is_err());
    }

    #[test]
    fn grpc_on_an_address_needs_certificates_of_both_sides() {
        let listen = "[grpc]\nlisten = \"127.0.0.1:7443\"\n";
        let error = Config::parse(listen).unwrap_err();
        assert!(
            error.message.contains("cert_file") && error.hint.is_some(),
            "{error}"
        );
        let two = format!("{listen}cert_file = \"/c\"\nkey_file = \"/k\"\n");
        let error = Config::parse(&two).unwrap_err();
        assert!(error.message.contains("client_ca_file"), "{error}");
        assert!(Config::parse(&format!("{two}client_ca_file = \"/a\"")).is_ok());
        assert!(Config::parse("[grpc]\nclient_ca_file = \"/a\"").is_err());
        assert!(Config::parse(&format!("{two}client_ca_file = \"a\"")).is_err());
    }

    #[test]
    fn unknown_keys_and_wild_numbers_are_refused() {
        assert!(Config::parse("colour = 1").is_err());
        let error = Config::parse("[defaults]\nmem_mib = 1").unwrap_err();
        assert!(error.message.contains("mem_mib is 1"), "{error}");
    }
}
