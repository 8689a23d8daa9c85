//! Builds while everything is collected that nobody needs.

use motu_testkit::builds::{build, project, world_of_its_own};
use std::sync::atomic::{AtomicBool, Ordering};

/// How many builds there are.
const BUILDS: usize = 6;

#[test]
fn a_build_loses_nothing_to_a_prune_beside_it() {
    let Some(story) = world_of_its_own() else {
        return;
    };
    // What the other tests share is not for this one to remove.
    motu_needs::probes::own_machines(&story.home());
    // Keeps the environment that builds begin with; nothing else does.
    let made = story.motu(&["create", "busybox", "--id", "keeper"]);
    assert_eq!(made.code, 0, "{made}");
    let text = "FROM busybox AS one\nARG N\nRUN echo $N > /n\n\
        FROM busybox\nRUN --mount=type=cache,target=/c date > /c/d; cat /c/d > /d\nCOPY --from=one /n /n\n";
    let dir = project(&story, "pruned", &[("Dockerfile", text)]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (story, over) = (&story, &over);
        let pruning = scope.spawn(move || {
            let mut pruned = 0;
            while !over.load(Ordering::Relaxed) {
                let told = story.motu(&["env", "prune", "--all"]);
                assert_eq!(told.code, 0, "{told}");
                pruned += 1;
            }
            pruned
        });
        let wrong = (0..BUILDS).find_map(|number| {
            let (name, arg) = (format!("n:{number}"), format!("N={number}"));
            let told = build(story, &dir, &["-t", &name, "--build-arg", &arg]);
            (told.code != 0).then_some(told)
        });
        over.store(true, Ordering::Relaxed);
        assert!(pruning.join().unwrap() > 0);
        assert!(wrong.is_none(), "{}", wrong.unwrap());
    });
    // What nobody needs any more goes.
    let told = story.motu(&["env", "prune", "--all"]);
    assert_eq!(told.code, 0, "{told}");
    let listed = story.motu(&["env", "list", "--json"]);
    assert!(!listed.stdout.contains("\"n:"), "{listed}");
}
