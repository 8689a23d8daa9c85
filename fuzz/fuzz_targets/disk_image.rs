//! A disk may hold anything: whatever is read from it comes with an end, and
//! without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use motu_disks::{Ext4Layer, Merged, open_disk};

fuzz_target!(|data: &[u8]| {
    let path = std::env::temp_dir().join(format!("motu-fuzz-disk-{}", std::process::id()));
    if std::fs::write(&path, data).is_err() {
        return;
    }
    if let Ok(disk) = open_disk(&[&path]) {
        let mut block = [0; 4096];
        for at in (0..disk.size().min(1 << 20)).step_by(4096) {
            let _ = disk.read_at(at, &mut block);
        }
        if let Ok(layer) = Ext4Layer::upper(disk, b"") {
            let mut view = Merged::new(vec![Box::new(layer)]);
            if let Ok(listing) = view.list(b"/", true, 100) {
                for entry in listing.entries {
                    let _ = view.read(entry.path.as_bytes(), 1000);
                }
            }
        }
    }
    let _ = std::fs::remove_file(&path);
});
