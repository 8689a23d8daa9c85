//! Programs people use, in a real distribution, behind the filter.
//!
//! Set `MOTU_TEST_ROOT` to the root of an environment that has them.

use crate::support::{World, ask};
use motu_core::Runtime;
use std::path::PathBuf;

#[tokio::test]
async fn ordinary_programs_do_not_notice() {
    let Some(root) = std::env::var_os("MOTU_TEST_ROOT").map(PathBuf::from) else {
        eprintln!("skipped: MOTU_TEST_ROOT names no root");
        return;
    };
    let sudo = root.join("usr/bin/sudo").exists();
    let world = World::with_root(Some(root.clone()));
    let mut spec = world.spec();
    spec.wants_sudo = sudo;
    spec.limits.mem_mib = ask(1024);
    spec.limits.disk_mib = ask(512);
    spec.limits.pids_max = ask(512);
    let (machine, guest) = world.create_from(&spec).await;
    let python = "python3 -c 'import threading, subprocess, multiprocessing as m, socket, tempfile, asyncio\n\
        t = threading.Thread(target=lambda: None); t.start(); t.join()\n\
        print(subprocess.run([\"echo\", \"sub\"], capture_output=True).stdout)\n\
        p = m.Pool(2); print(p.map(abs, [-1, -2])); p.close(); p.join()\n\
        asyncio.run(asyncio.sleep(0.01))\n\
        s = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen()'";
    let git = "cd /tmp && rm -rf r && git init -q r && cd r && git config user.email a@b && git config user.name a && echo x > f && git add f && git commit -qm x && git log --oneline";
    let mut ran = 0;
    for (program, user, script) in [
        ("python3", "user", python),
        ("git", "user", git),
        ("apt-get", "root", "apt-get --version && apt-get check"),
        ("dpkg", "root", "dpkg -l | tail -1 && dpkg --audit"),
        ("sudo", "user", "sudo -n id -u | grep -x 0"),
        ("perl", "user", "perl -e 'fork; wait; print 1'"),
        ("find", "user", "find /usr/bin | sort | head -1"),
        ("tar", "user", "tar c /etc/passwd 2>/dev/null | tar t"),
    ] {
        if !root.join("usr/bin").join(program).exists() {
            eprintln!("{program}: not in this root");
            continue;
        }
        let said = guest.sh(user, script).await;
        assert_eq!(said.code, 0, "{program} as {user}: {said:?}");
        ran += 1;
    }
    assert!(ran > 2, "{} has almost no programs", root.display());
    world.runtime.destroy(&machine).await.unwrap();
}
