//! The guest program: dispatches its first argument and nothing else.

use std::ffi::OsString;

/// `/workspace` of a virtual machine whose disks are kept.
fn overlay(workspace: motu_boot::Workspace) -> motu_guest::WorkspaceDirs {
    motu_guest::WorkspaceDirs {
        path: "/workspace".into(),
        lower: workspace.lower,
        upper: Some(motu_guest::Upper {
            dir: workspace.upper,
            user_attributes: false,
        }),
        copied_unix_ns: None,
    }
}

fn main() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let code = match arguments.first().and_then(|verb| verb.to_str()) {
        Some("serve") => motu_guest::command(&arguments[1..]),
        Some("launch") => {
            // Facts about the kernel, asked for while the launcher still may. Before Linux 6.4 they are in a file of /proc,
            // and whoever nobody may trace cannot open it: a machine of an ordinary user would end when it needs them.
            let _ = rustix::param::page_size();
            motu_launch::main(arguments.into_iter().skip(1), |start| {
                motu_guest::serve(start.into())
            })
        }
        Some("init") => {
            motu_boot::main(|workspace| motu_guest::serve_machine(workspace.map(overlay)))
        }
        _ => {
            eprintln!(
                "usage: motu-guest launch | init | serve (--listen-fd N | --listen PATH) [--pid1] [--end-with-parent] [--lock-fd N] \
                 [--restrict CAPABILITIES:FILES:PRIVILEGES[:PROCESSES]] [--processors N] [--write FILE=VALUE]... [--seal DIR] [--unmount DIR]... \
                 [--workspace-lower PATH [--workspace-upper PATH [--workspace-user-attributes]] \
                 [--workspace PATH] [--workspace-copied-ns N]]"
            );
            2
        }
    };
    std::process::exit(code);
}
