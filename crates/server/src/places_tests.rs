use super::*;

fn places(known: usize, waiting: usize) -> Places {
    Places::new(Bounds {
        known,
        waiting,
        patience: Some(Duration::from_secs(15)),
    })
}

fn at(last: u8) -> Option<IpAddr> {
    Some(IpAddr::from([192, 0, 2, last]))
}

async fn is_over(place: &Place) -> bool {
    tokio::time::timeout(Duration::ZERO, place.over())
        .await
        .is_ok()
}

async fn over(all: &[Place]) -> Vec<bool> {
    let mut found = Vec::new();
    for place in all {
        found.push(is_over(place).await);
    }
    found
}

#[tokio::test(start_paused = true)]
async fn whoever_shows_no_key_has_so_much_time() {
    let places = places(8, 8);
    let (stranger, known) = (places.enter(at(1)), places.enter(at(1)));
    assert_eq!(known.know("acme"), Ok(true));
    assert_eq!(known.know("acme"), Ok(false));
    let begin = Instant::now();
    stranger.over().await;
    assert_eq!(begin.elapsed().as_secs(), 15);
    stranger.late().await;
    assert_eq!(begin.elapsed().as_secs(), 16);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!is_over(&known).await);
    // Its key is revoked: it has as much time to show another.
    known.until(std::future::ready(()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!is_over(&known).await);
    assert_eq!(known.know("acme"), Ok(true));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let busy = known.serve();
    known.until(std::future::ready(()));
    // What somebody else is being served on it comes to its end before.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!is_over(&known).await);
    drop(busy);
    let begin = Instant::now();
    known.over().await;
    assert_eq!(begin.elapsed().as_secs(), 15);
}

#[tokio::test(start_paused = true)]
async fn one_address_has_half_of_the_room_and_loses_its_own() {
    let places = places(2, 8);
    let other = places.enter(at(9));
    let mut crowd: Vec<Place> = (0..4).map(|_| places.enter(at(1))).collect();
    assert_eq!(over(&crowd).await, [false; 4]);
    crowd.push(places.enter(at(1)));
    assert_eq!(over(&crowd).await, [true, false, false, false, false]);
    // A good key is let in all the same, from that address too, and does not wait any more.
    let good = places.enter(at(1));
    assert_eq!(good.know("acme"), Ok(true));
    for _ in 0..100 {
        crowd.push(places.enter(at(1)));
    }
    assert!(!is_over(&good).await && !is_over(&other).await);
}

#[tokio::test(start_paused = true)]
async fn where_many_addresses_wait_the_largest_crowd_makes_room() {
    let places = places(2, 4);
    let crowd = [places.enter(at(1)), places.enter(at(1))];
    let others = [places.enter(at(2)), places.enter(at(3))];
    let come = places.enter(at(4));
    assert_eq!(over(&crowd).await, [true, false]);
    assert_eq!(over(&others).await, [false; 2]);
    assert!(!is_over(&come).await);
}

#[tokio::test(start_paused = true)]
async fn the_known_are_counted_and_no_project_has_all() {
    let places = places(4, 8);
    let known: Vec<Place> = (0..3).map(|_| places.enter(at(1))).collect();
    for place in &known {
        assert_eq!(place.know("acme"), Ok(true));
    }
    let more = places.enter(at(1));
    let error = more.know("acme").unwrap_err();
    assert_eq!(error.details["limit"], "listen_connections");
    assert_eq!(more.know("beta"), Ok(true));
    let last = places.enter(at(2));
    assert!(last.know("gamma").is_err());
    drop(known);
    assert_eq!(last.know("gamma"), Ok(true));
    // A clone holds it as well.
    let clone = more.clone();
    drop(more);
    assert_eq!(places.table().held.len(), 2);
    drop(clone);
    assert_eq!(places.table().held.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_idle_makes_room_and_what_is_served_does_not() {
    let places = Places::new(Bounds {
        known: usize::MAX,
        waiting: 2,
        patience: None,
    });
    let (first, second) = (places.enter(None), places.enter(None));
    let busy = first.serve();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let third = places.enter(None);
    assert_eq!(over(&[first.clone(), second.clone()]).await, [false; 2]);
    let fourth = places.enter(None);
    assert_eq!(over(&[first.clone(), second.clone()]).await, [false, true]);
    // It waits from now on, and so is the last to go.
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(busy);
    assert!(places.spare_one() && places.spare_one());
    let left = [first, third, fourth];
    assert_eq!(over(&left).await, [false, true, true]);
    assert!(places.spare_one() && !places.spare_one());
}

#[test]
fn a_host_with_few_descriptors_has_few_places() {
    let bounds = Bounds {
        known: 512,
        waiting: 512,
        patience: None,
    };
    let few = bounds.within(128);
    assert_eq!((few.known, few.waiting), (32, 16));
    let many = bounds.within(65_536);
    assert_eq!((many.known, many.waiting), (512, 512));
}

#[test]
fn a_network_of_ipv6_is_one_caller() {
    let one = |text: &str| network(text.parse().unwrap());
    assert_eq!(one("2001:db8::1"), one("2001:db8::ffff:1:2:3"));
    assert_ne!(one("2001:db8::1"), one("2001:db8:0:1::1"));
    assert_eq!(one("::ffff:192.0.2.1"), one("192.0.2.1"));
}
