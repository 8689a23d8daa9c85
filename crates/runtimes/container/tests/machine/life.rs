//! From `create` to nothing left.

use crate::support::World;
use motu_core::Runtime;

#[tokio::test]
async fn a_machine_boots_answers_and_leaves_nothing() {
    let world = World::new();
    let (machine, guest) = world.create().await;
    guest.ping().await;
    let said = guest
        .sh("root", "id -u; hostname; ls /; cat /proc/mounts")
        .await;
    println!("{said:?}");
    assert_eq!(said.code, 0);
    world.runtime.destroy(&machine).await.unwrap();
    assert!(!world.runtime.alive(&machine).await);
    assert_eq!(std::fs::read_dir(&machine.dir).unwrap().count(), 0);
}
