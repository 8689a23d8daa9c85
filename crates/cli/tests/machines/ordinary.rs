//! Common expectations of programs, on every runtime: renames between directories, a resolvable
//! host name, visible limits, and a complete Debian file system.

use motu_testkit::story::Story;

/// Checks for every runtime. Each step is printed before it is tried, so the last one printed is
/// the one that failed.
const EVERYWHERE: &str = r#"
set -e
step() { echo "step: $*" >&2; }
cd "$(mktemp -d /home/user/ordinary.XXXXXX)"
step "the own name is found"
getent hosts "$(hostname)"
step "as many open files, soft and hard; no more than the daemon may have itself"
test "$(ulimit -Sn)" = "$(ulimit -Hn)"
test "$(ulimit -Sn)" -ge 10000
step "shared memory and locks in it"
test "$(stat -c %a /dev/shm)" = 1777
python3 -c 'import multiprocessing as m; l = m.Lock(); l.acquire(); l.release()'
step "names move between directories"
mkdir a b
echo x >a/f
python3 -c 'import os; os.replace("a/f", "b/f"); os.link("b/f", "a/g"); os.rename("a", "b/a")'
test "$(cat b/a/g)" = x
step "git"
git init -q --bare origin.git
git clone -q origin.git work 2>/dev/null
git config --global user.email a@b
git config --global user.name a
(
    cd work
    mkdir sub
    echo 1 >sub/f
    git add .
    git commit -qm 1
    git branch -m other
    git push -q origin HEAD:main
    git mv sub moved
    git commit -qm 2
    git worktree add -q ../tree
    git gc -q
    git fsck --no-progress
)
test -f tree/moved/f
step "venv"
python3 -c 'import ensurepip'
python3 -m venv --without-pip env
env/bin/python -c 'import sys; assert sys.prefix != sys.base_prefix'
step "make"
printf 'all:\n\t@echo made\n' >Makefile
test "$(make)" = made
step "a database with a log of its writes"
python3 -c '
import sqlite3
c = sqlite3.connect("db")
assert c.execute("pragma journal_mode=wal").fetchone()[0] == "wal"
c.execute("create table t(x)")
c.execute("insert into t values (1)")
c.commit()
assert sqlite3.connect("db").execute("select x from t").fetchone() == (1,)
'
step "tar"
mkdir copy
tar cf - work | tar xf - -C copy
diff -r work copy/work
step "ping"
ping -c 1 -W 10 127.0.0.1 >/dev/null
step "the memory is the machine's"
awk '/^MemTotal/ { exit !($2 > 400000 && $2 <= 524288) }' /proc/meminfo
free -m >/dev/null
"#;

/// Checks for machines with a Linux kernel, shared or their own.
const ON_LINUX: &str = r#"
step "sudo has nothing to say"
test -z "$(sudo -n true 2>&1)"
step "message queues"
test "$(stat -f -c %T /dev/mqueue)" = mqueue
"#;

/// Checks of a container's view of its cgroups.
const IN_A_CONTAINER: &str = r#"
step "the limit of memory"
limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes)
test "$limit" = 536870912
step "nobody may change it"
for file in $(find /sys/fs/cgroup/ -name 'memory.max' -o -name memory.limit_in_bytes); do
    ! sudo -n sh -c "echo 1073741824 >$file" 2>/dev/null
done
step "other machines are not seen"
test -z "$(find /sys/fs/cgroup/ -mindepth 2 -name 'sb-*')"
step "memory that is used is not free"
free() { awk '/^MemFree/ { print $2 }' /proc/meminfo; }
before=$(free)
head -c 40000000 /dev/zero >/dev/shm/used
for _ in $(seq 300); do
    if [ "$(free)" -lt $((before - 30000)) ]; then break; fi
    sleep 0.1
done
test "$(free)" -lt $((before - 30000))
"#;

/// Servers and their clients, as root in the environment that `tools/programs` builds.
const SERVERS: &str = r#"
set -e
step() { echo "step: $*" >&2; }
soon() { for _ in $(seq 600); do if "$@" >/dev/null 2>&1; then return; fi; sleep 0.1; done; "$@"; }
cd "$(mktemp -d /root/servers.XXXXXX)"
step "rsync"
mkdir -p from/sub
echo x >from/sub/f
rsync -a from/ to/
diff -r from to
step "tmux"
tmux -L ordinary new-session -d "echo told >$PWD/told; sleep 100"
soon grep told "$PWD/told"
tmux -L ordinary kill-server
step "redis"
redis-server --port 7001 --daemonize yes --dir "$PWD" --appendonly yes >/dev/null
soon redis-cli -p 7001 ping
redis-cli -p 7001 set key value >/dev/null
test "$(redis-cli -p 7001 get key)" = value
redis-cli -p 7001 shutdown
step "nginx"
echo page >index.html
chmod 755 /root "$PWD"
echo "events {} http { server { listen 7002; root $PWD; } }" >nginx.conf
nginx -c "$PWD/nginx.conf"
fetch() { python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:7002/").read().decode().strip())'; }
soon fetch
test "$(fetch)" = page
nginx -c "$PWD/nginx.conf" -s quit
step "PostgreSQL"
pg_ctlcluster 15 main start
test "$(runuser -u postgres -- psql -tAc 'select 6 * 7')" = 42
pg_ctlcluster 15 main stop -m fast
step "Node.js sees the machine's memory"
node -e 'process.exit(require("os").totalmem() <= 768 * 1048576 ? 0 : 1)'
"#;

/// Command line and system tools, as root, after the servers.
const TOOLS: &str = r#"
step "apt, from a repository of the machine's own"
mkdir -p repository/DEBIAN tiny/DEBIAN tiny/usr/share/tiny
printf 'Package: tiny\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@b>\nDescription: tiny\n' >tiny/DEBIAN/control
echo tiny >tiny/usr/share/tiny/file
rmdir repository/DEBIAN
dpkg-deb --root-owner-group --build tiny repository/tiny.deb >/dev/null
(
    cd repository
    dpkg-deb --field tiny.deb >Packages
    printf 'Filename: ./tiny.deb\nSize: %s\nSHA256: %s\n' "$(stat -c %s tiny.deb)" "$(sha256sum tiny.deb | cut -d' ' -f1)" >>Packages
)
chmod -R a+rX "$PWD"
echo "deb [trusted=yes] file:$PWD/repository ./" >own.list
apt="apt-get -qq -o Dir::Etc::SourceList=$PWD/own.list -o Dir::Etc::SourceParts=-"
$apt update
$apt install -y tiny >/dev/null
test "$(cat /usr/share/tiny/file)" = tiny
$apt remove -y tiny >/dev/null
test ! -e /usr/share/tiny/file
step "pip and a venv, from a wheel of the machine's own"
python3 -m venv --system-site-packages env
mkdir -p wheel/tinypkg
echo 'def answer(): return 42' >wheel/tinypkg/__init__.py
printf 'from setuptools import setup\nsetup(name="tinypkg", version="1", packages=["tinypkg"], entry_points={"console_scripts": ["tinypkg=tinypkg:answer"]})\n' >wheel/setup.py
(cd wheel && python3 setup.py -q bdist_wheel 2>/dev/null)
env/bin/pip install -q --no-index --disable-pip-version-check wheel/dist/*.whl
test "$(env/bin/python -c 'import tinypkg; print(tinypkg.answer())')" = 42
test -x env/bin/tinypkg
step "sshd, with a key"
mkdir -p /run/sshd /root/.ssh
ssh-keygen -q -t ed25519 -N '' -f key
ssh-keygen -A >/dev/null
install -m 600 key.pub /root/.ssh/authorized_keys
chmod 700 /root/.ssh /root
/usr/sbin/sshd -p 7022 -o ListenAddress=127.0.0.1 -o PidFile="$PWD/sshd.pid"
login() { ssh -q -p 7022 -i key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes root@127.0.0.1 "$@"; }
soon login true
test "$(login echo hello from '$SHELL')" = "hello from /bin/bash"
# With a terminal of its own.
test "$(ssh -tt -q -p 7022 -i key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null root@127.0.0.1 tty | tr -d '\r' | cut -d/ -f1-3)" = /dev/pts
kill "$(cat sshd.pid)"
"#;

/// Tools that trace other programs.
const TRACERS: &str = r#"
step "strace"
strace -f -e trace=openat -o trace sh -c 'cat /etc/hostname; true' >/dev/null
grep -q '"/etc/hostname"' trace
step "gdb"
gdb -q -batch -ex starti -ex 'info registers rip' -ex continue /bin/true >gdb.out 2>&1
grep -q 'rip  *0x' gdb.out
grep -q 'exited normally' gdb.out
"#;

/// Compilers and their output, in the compilers environment that `tools/programs` builds.
const COMPILERS: &str = r#"
set -e
step() { echo "step: $*" >&2; }
cd "$(mktemp -d /root/compilers.XXXXXX)"
export HOME="$PWD"
step "gcc and make"
mkdir c
printf '#include <stdio.h>\nint answer(void);\nint main(void) { printf("%%d\\n", answer()); }\n' >c/main.c
printf 'int answer(void) { return 42; }\n' >c/answer.c
printf 'main: main.o answer.o\n\t$(CC) -o $@ $^\n' >c/Makefile
make -s -j2 -C c
test "$(c/main)" = 42
step "npm: pack, install, run"
mkdir tiny app
printf '{"name":"tiny","version":"1.0.0","main":"main.js","bin":{"tiny":"main.js"}}' >tiny/package.json
printf '#!/usr/bin/env node\nmodule.exports = 42;\nconsole.log(module.exports);\n' >tiny/main.js
printf '{"name":"app","version":"1.0.0","scripts":{"answer":"tiny"}}' >app/package.json
(cd tiny && npm pack --silent >/dev/null)
(cd app && npm install --silent --offline --no-audit --no-fund ../tiny/tiny-1.0.0.tgz)
test "$(cd app && npm run --silent answer)" = 42
step "Go: build, run"
mkdir program
cat >program/main.go <<'GO'
package main

import "fmt"

func main() {
	answers := make(chan int)
	for i := 0; i < 6; i++ {
		go func() { answers <- 7 }()
	}
	sum := 0
	for i := 0; i < 6; i++ {
		sum += <-answers
	}
	fmt.Println(sum)
}
GO
cd program
GOFLAGS=-mod=mod go mod init example.com/answer 2>/dev/null
go build -o answer .
test "$(./answer)" = 42
"#;

/// A cron job for the next minute, started first and checked at the end.
const CRON_BEGINS: &str = r#"
echo '* * * * * root echo "$LOGNAME" >/run/cron-ran' >/etc/cron.d/ordinary
chmod 644 /etc/cron.d/ordinary
cron
"#;
const CRON_ENDS: &str = r#"
step "cron"
for _ in $(seq 700); do if [ -s /run/cron-ran ]; then break; fi; sleep 0.1; done
test "$(cat /run/cron-ran)" = root
"#;

/// Runs the script in a machine of 512 MiB.
fn ordinary(runtime: &str, script: &str) {
    let Some(story) = Story::with_debian(runtime) else {
        return;
    };
    let mut arguments = vec!["run", "debian:12", "--runtime", runtime];
    arguments.extend(["--mem-mib", "512", "--timeout-seconds", "400"]);
    arguments.extend(["--", "bash", "-c", script]);
    let told = story.motu(&arguments);
    assert_eq!(told.code, 0, "{runtime}: {told}");
}

/// Runs the script as root in the environment of that kind.
fn among(kind: &str, runtime: &str, script: &str) {
    let Some(story) = Story::with_debian(runtime) else {
        return;
    };
    let root = motu_testkit::root();
    let mut made = std::process::Command::new(root.join("tools/programs"));
    let made = made.arg(kind).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let name = format!("tar:{}", String::from_utf8_lossy(&made.stdout).trim());
    let pulled = story.motu(&["env", "pull", &name]);
    assert_eq!(pulled.code, 0, "{pulled}");
    let mut arguments = vec!["run", &name, "--runtime", runtime, "--user", "root"];
    arguments.extend(["--mem-mib", "768", "--timeout-seconds", "600"]);
    arguments.extend(["--", "bash", "-c", script]);
    let told = story.motu(&arguments);
    assert_eq!(told.code, 0, "{runtime}: {told}");
}

fn servers(runtime: &str) {
    let script = [CRON_BEGINS, SERVERS, TOOLS, TRACERS, CRON_ENDS].concat();
    among("everyday", runtime, &script);
}

#[test]
fn in_a_container() {
    ordinary(
        "container",
        &[EVERYWHERE, ON_LINUX, IN_A_CONTAINER].concat(),
    );
}

#[test]
fn in_gvisor() {
    ordinary("gvisor", EVERYWHERE);
}

#[test]
fn in_a_virtual_machine() {
    ordinary("qemu", &[EVERYWHERE, ON_LINUX].concat());
}

#[test]
fn servers_in_a_container() {
    servers("container");
}

#[test]
fn servers_in_gvisor() {
    servers("gvisor");
}

#[test]
fn servers_in_a_virtual_machine() {
    servers("qemu");
}

#[test]
fn compilers_in_a_container() {
    among("compilers", "container", COMPILERS);
}

#[test]
fn compilers_in_gvisor() {
    among("compilers", "gvisor", COMPILERS);
}

#[test]
fn compilers_in_a_virtual_machine() {
    among("compilers", "qemu", COMPILERS);
}
