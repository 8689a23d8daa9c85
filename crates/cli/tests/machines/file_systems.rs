//! What the documentation says of file systems that pjdfstest finds different.

use crate::pjdfstest::{ALL, listed};

/// The table of the documentation has as many as the lists.
#[test]
fn the_page_counts_what_is_listed() {
    let page = std::fs::read_to_string(motu_testkit::root().join("docs/environments.md")).unwrap();
    let (_, table) = page.split_once("| runtime | where | questions |").unwrap();
    for runtime in ["container", "gvisor", "qemu"] {
        for place in ["/", "/workspace"] {
            let start = format!("| `{runtime}` | `{place}` | ");
            let rows = table.lines().filter_map(|line| line.strip_prefix(&start));
            let counts = rows.map(|rest| rest.split_once(' ').unwrap().0.parse::<usize>().unwrap());
            let known = listed(runtime, place, &ALL).len();
            assert_eq!(counts.sum::<usize>(), known, "{runtime} {place}");
        }
    }
}
