//! Virtual machines, compared with a QEMU that only boots the same kernel.
//!
//! Complete commands use the daemon; copies and pauses are measured on the runtime itself, with
//! a separate state directory.

mod bare;
mod guest;

use crate::rivals::quiet;
use crate::stats::Timings;
use crate::{Bench, Outcome};
use motu_core::config::QemuConfig;
use motu_core::runtime::{Ask, Machine, MachineLimits, MachineSpec};
use motu_core::{Accel, Runtime, SandboxId};
use motu_qemu::{Qemu, Settings};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const MEM_MIB: u64 = 512;
const ROUNDS: usize = 7;

pub fn measure(bench: &mut Bench) -> Outcome {
    bench
        .report
        .group("virtual machines under software emulation (p50)");
    bench.note_load();
    commands(bench)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(machines(bench))
}

fn commands(bench: &mut Bench) -> Outcome {
    let run = ["run", "busybox", "--runtime", "qemu", "--", "true"];
    quiet(bench.motu.command(&["env", "pull", "busybox"]))?;
    let begun = Instant::now();
    quiet(bench.motu.command(&run))?;
    bench.report.note(
        "motu run busybox --runtime qemu, the first ever",
        format!("{:.0} ms", ms(begun.elapsed())),
    );
    let timings = Timings::of(20, || quiet(bench.motu.command(&run)))?;
    bench.report.at_most(
        "motu run busybox --runtime qemu -- true",
        timings.p50(),
        250.0,
        "ms",
    );
    bench
        .report
        .note("  p95", format!("{:.0} ms", timings.quantile(0.95)));
    Ok(())
}

/// A runtime with its own state directory.
struct World {
    runtime: Qemu,
    home: PathBuf,
    root: PathBuf,
}

impl World {
    fn open(bench: &Bench, spares: usize) -> Fallible<World> {
        let home = bench.motu.home.join("vm");
        std::fs::create_dir_all(&home)?;
        let guest = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../target/guest/x86_64-unknown-linux-gnu/guest/motu-guest");
        let runtime = Qemu::new(Settings {
            guest: std::fs::read(guest)?.into(),
            home: home.clone(),
            accel: motu_needs::accelerator().parse()?,
            spares,
            config: QemuConfig::default(),
        })?;
        Ok(World {
            runtime,
            home,
            root: bench.motu.root_of("busybox")?,
        })
    }

    fn spec(&self) -> Fallible<MachineSpec> {
        let id = SandboxId::generate();
        let dir = self.home.join("machines").join(id.as_str());
        std::fs::create_dir_all(&dir)?;
        let ask = |value| Ask {
            value,
            explicit: false,
        };
        Ok(MachineSpec {
            hostname: id.to_string(),
            id,
            dir,
            environment: "test".into(),
            root: self.root.clone(),
            wants_sudo: false,
            limits: MachineLimits {
                vcpu_count: ask(1),
                mem_mib: ask(MEM_MIB),
                disk_mib: ask(1024),
                pids_max: ask(1024),
                nofile: ask(4096),
                io_mbps: Ask::NONE,
                iops: Ask::NONE,
            },
            accel: Accel::Auto,
            kept: None,
            network: None,
        })
    }

    async fn end(&self, machine: &Machine) -> Fallible<()> {
        self.runtime.destroy(machine).await?;
        std::fs::remove_dir_all(&machine.dir)?;
        Ok(())
    }
}

async fn machines(bench: &mut Bench) -> Outcome {
    let world = World::open(bench, 0)?;
    boots(bench, &world).await?;
    let source = world.runtime.create(&world.spec()?).await?;
    let done = copies(bench, &world, &source).await;
    let paused = pauses(bench, &world, &source).await;
    world.end(&source).await?;
    done.and(paused)
}

async fn boots(bench: &mut Bench, world: &World) -> Outcome {
    let ours = async || -> Fallible<Duration> {
        let spec = world.spec()?;
        let took = world.runtime.cold_boot(&spec).await?;
        std::fs::remove_dir_all(&spec.dir)?;
        Ok(took)
    };
    // The first run also fetches the kernel and creates the disks.
    ours().await?;
    let bare = bare::Bare::prepare(&world.home)?;
    let mut pairs = Vec::new();
    for _ in 0..ROUNDS {
        // Alternate, because the speed of the host varies.
        pairs.push((ours().await?, bare.boot()?));
    }
    let (ours, theirs): (Vec<Duration>, Vec<Duration>) = pairs.into_iter().unzip();
    let (ours, theirs) = (Timings::from(ours).p50(), Timings::from(theirs).p50());
    bench
        .report
        .note("cold boot to the guest's answer", format!("{ours:.0} ms"));
    bench.report.note(
        "bare QEMU, same kernel, ping-only init",
        format!("{theirs:.0} ms"),
    );
    bench
        .report
        .at_most("ratio to the bare QEMU", ours / theirs, 1.25, "x");
    Ok(())
}

async fn copies(bench: &mut Bench, world: &World, source: &Machine) -> Outcome {
    for (count, limit) in [(1, 300.0), (10, 2000.0)] {
        let (mut all, mut pss) = (Vec::new(), 0.0);
        for _ in 0..ROUNDS.div_ceil(count) + 1 {
            let specs = (0..count)
                .map(|_| world.spec())
                .collect::<Fallible<Vec<MachineSpec>>>()?;
            let begun = Instant::now();
            let copies = world.runtime.fork(source, &specs).await?;
            guest::exec(&world.runtime, &copies[0]).await?;
            all.push(begun.elapsed());
            pss = copies.iter().map(pss_mib).sum::<Fallible<f64>>()? / count as f64;
            for copy in &copies {
                world.end(copy).await?;
            }
        }
        let what = format!("fork into {count} of {MEM_MIB} MiB, to the first exec in a copy");
        bench
            .report
            .at_most(&what, Timings::from(all).p50(), limit, "ms");
        match count {
            1 => bench.report.note("  PSS of it", format!("{pss:.0} MiB")),
            _ => bench
                .report
                .at_most("  PSS of an idle copy", pss, 30.0, "MiB"),
        }
    }
    Ok(())
}

async fn pauses(bench: &mut Bench, world: &World, machine: &Machine) -> Outcome {
    let (mut stops, mut goes) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let begun = Instant::now();
        world.runtime.pause(machine).await?;
        stops.push(begun.elapsed());
        let begun = Instant::now();
        world.runtime.resume(machine).await?;
        goes.push(begun.elapsed());
    }
    for (what, all) in [("pause", stops), ("resume, with the clock set", goes)] {
        bench
            .report
            .at_most(what, Timings::from(all).p50(), 20.0, "ms");
    }
    Ok(())
}

fn pss_mib(machine: &Machine) -> Fallible<f64> {
    let pid = machine.record["process"]["pid"].as_i64().ok_or("no pid")?;
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find(|line| line.starts_with("Pss:"));
    let kib: f64 = line
        .and_then(|line| line.split_whitespace().nth(1))
        .ok_or("no PSS")?
        .parse()?;
    Ok(kib / 1024.0)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
