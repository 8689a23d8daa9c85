//! Refusals, and their kinds of error.

use crate::life::{Life, refused, shell};
use motu_core::sandbox::CreateSandbox;
use motu_core::{ErrorKind, Isolation, Service as _, Size};

async fn refuse(life: &Life, kind: ErrorKind, request: CreateSandbox) -> motu_core::Error {
    let error = refused(kind, life.engine.create_sandbox(request).await);
    let left = life
        .engine
        .list_sandboxes(Default::default())
        .await
        .expect("a list");
    assert!(left.is_empty(), "{left:?}");
    error
}

pub async fn an_unknown_runtime_is_invalid(life: Life) {
    let request = CreateSandbox {
        runtime: Some("no-such-runtime".into()),
        ..life.request()
    };
    let error = refuse(&life, ErrorKind::Invalid, request).await;
    assert!(
        error
            .hint
            .is_some_and(|hint| hint.contains(life.subject.name))
    );
}

pub async fn too_weak_isolation_is_denied(life: Life) {
    let runtime = &life.runtime;
    let request = |isolation| CreateSandbox {
        isolation: Some(isolation),
        ..life.request()
    };
    if runtime.isolation() < Isolation::Vm {
        refuse(&life, ErrorKind::Denied, request(Isolation::Vm)).await;
    }
    let made = life
        .engine
        .create_sandbox(request(runtime.isolation()))
        .await;
    made.expect("what it gives is enough");
}

/// A machine has a network device if it is requested, and only then; a runtime that cannot provide
/// one refuses.
pub async fn a_network_is_given_or_refused(life: Life) {
    let request = CreateSandbox {
        network: true,
        ..life.request()
    };
    if !life.runtime.capabilities().network {
        refuse(&life, ErrorKind::Unsupported, request).await;
        return;
    }
    let without = life.create().await;
    let with = life.engine.create_sandbox(request).await;
    let with = with.expect("a machine with a network");
    assert_eq!((&*without.network, &*with.network), ("off", "egress"));
    for (sandbox, there) in [(without, false), (with, true)] {
        let devices = life.exec(&sandbox, shell("cat /proc/net/dev")).await;
        assert_eq!(devices.stdout.contains("eth0:"), there, "{devices:?}");
    }
}

pub async fn limits_out_of_range_are_invalid(life: Life) {
    let base = || life.request();
    for request in [
        CreateSandbox {
            size: Size {
                mem_mib: Some(1),
                ..base().size
            },
            ..base()
        },
        CreateSandbox {
            size: Size {
                vcpu_count: Some(0),
                ..base().size
            },
            ..base()
        },
        CreateSandbox {
            size: Size {
                disk_mib: Some(u64::MAX),
                ..base().size
            },
            ..base()
        },
        CreateSandbox {
            pids_max: Some(1),
            ..base()
        },
        CreateSandbox {
            io_mbps: Some(u64::MAX),
            ..base()
        },
        CreateSandbox {
            ttl_seconds: Some(u64::MAX),
            ..base()
        },
        CreateSandbox {
            workdir: Some("relative".into()),
            ..base()
        },
    ] {
        refuse(&life, ErrorKind::Invalid, request).await;
    }
}

pub async fn an_id_in_use_is_a_conflict(life: Life) {
    let sandbox = life.create().await;
    let request = || CreateSandbox {
        sandbox_id: Some(sandbox.sandbox_id.clone()),
        ..life.request()
    };
    refused(
        ErrorKind::Conflict,
        life.engine.create_sandbox(request()).await,
    );
    // The refused one has not affected the first.
    let found = life.get(&sandbox.sandbox_id).await;
    assert_eq!(found.state, motu_core::sandbox::State::Running);
    life.exec(&sandbox, crate::life::argv(&["true"])).await;
}

pub async fn a_missing_environment_is_told(life: Life) {
    let request = |name: &str| CreateSandbox {
        environment: name.into(),
        ..life.request()
    };
    refuse(&life, ErrorKind::Invalid, request("")).await;
    let runtime = &life.runtime;
    if runtime.capabilities().uses_environment {
        refuse(&life, ErrorKind::NotFound, request("no-such-environment")).await;
        refuse(&life, ErrorKind::Invalid, request("../../etc")).await;
    }
}

pub async fn bad_variables_are_invalid(life: Life) {
    for (name, value) in [("", "x"), ("A=B", "x"), ("A", "x\0y")] {
        let mut request = life.request();
        request.env.insert(name.into(), value.into());
        refuse(&life, ErrorKind::Invalid, request).await;
    }
}

pub async fn every_limit_is_reported(life: Life) {
    let sandbox = life.create().await;
    for name in ["vcpu_count", "mem_mib", "disk_mib", "pids_max", "nofile"] {
        let limit = sandbox.limits.iter().find(|limit| limit.name == name);
        let limit = limit.unwrap_or_else(|| panic!("{name} is not reported"));
        assert!(limit.value > 0, "{limit:?}");
        assert!(!limit.by.is_empty(), "{limit:?}");
    }
}
