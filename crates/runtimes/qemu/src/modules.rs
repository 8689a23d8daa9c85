//! Kernel modules in the order of loading.
//!
//! A module names the ones it needs, and which those are changes from one kernel to the next
//! (`virtio` and `virtio_ring` have changed places). So what each says is followed: its needs come
//! before it, wanted or not. What a kernel has built in needs no file.

use crate::packing;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Where a module names its needs, in its `.modinfo` section.
const DEPENDS: &[u8] = b"\0depends=";
/// What a module may weigh.
const MAX_MODULE: u64 = 64 << 20;
/// Longest list of needs that is read.
const MAX_DEPENDS: usize = 4096;

/// The modules of one kernel, by name.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    files: BTreeMap<String, PathBuf>,
    built_in: BTreeSet<String>,
}

/// A module that is to be loaded.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    /// As the package calls it.
    pub(crate) file: PathBuf,
    /// Not compressed.
    pub(crate) content: Vec<u8>,
}

/// Why there is no order.
#[derive(Debug)]
pub(crate) enum Lacking {
    /// A module of that name.
    Module(String),
    Reading(std::io::Error),
}

impl Modules {
    pub(crate) fn add(&mut self, name: &str, file: PathBuf) {
        self.files.insert(plain(name), file);
    }

    /// The lines of `modules.builtin`.
    pub(crate) fn built_in(&mut self, list: &str) {
        let names = list.lines().filter_map(|line| {
            let file = line.trim().rsplit('/').next()?;
            Some(plain(file.split_once(".ko")?.0))
        });
        self.built_in.extend(names);
    }

    /// Whether there is a file of that module.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.files.contains_key(&plain(name))
    }

    /// What `wanted` needs and does not have in `before`, in the order of loading.
    pub(crate) fn in_order(
        &self,
        wanted: &[&str],
        before: &[Module],
    ) -> Result<Vec<Module>, Lacking> {
        let mut order = Vec::new();
        let mut seen: BTreeSet<String> = before.iter().map(|one| one.name.clone()).collect();
        for name in wanted {
            self.visit(plain(name), &mut seen, &mut order)?;
        }
        Ok(order)
    }

    fn visit(
        &self,
        name: String,
        seen: &mut BTreeSet<String>,
        order: &mut Vec<Module>,
    ) -> Result<(), Lacking> {
        // Noted before its needs: modules that need each other do not go on for ever.
        if self.built_in.contains(&name) || !seen.insert(name.clone()) {
            return Ok(());
        }
        let Some(file) = self.files.get(&name).cloned() else {
            return Err(Lacking::Module(name));
        };
        let content = std::fs::read(&file)
            .and_then(|packed| packing::unpacked(&packed, MAX_MODULE))
            .map_err(Lacking::Reading)?;
        for need in depends(&content) {
            self.visit(need, seen, order)?;
        }
        order.push(Module {
            name,
            file,
            content,
        });
        Ok(())
    }
}

/// One spelling of a name: files have dashes where the kernel has underscores.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

/// The modules that one needs.
fn depends(content: &[u8]) -> Vec<String> {
    let found = content
        .windows(DEPENDS.len())
        .position(|window| window == DEPENDS);
    let Some(start) = found.map(|at| at + DEPENDS.len()) else {
        return Vec::new();
    };
    let list = content[start..].iter().take(MAX_DEPENDS);
    let list: Vec<u8> = list.take_while(|byte| **byte != 0).copied().collect();
    let names = String::from_utf8_lossy(&list).into_owned();
    let names = names.split(',').filter(|name| !name.is_empty());
    names.map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel whose modules need these others.
    fn kernel(all: &[(&str, &[u8])]) -> (tempfile::TempDir, Modules) {
        let dir = tempfile::tempdir().unwrap();
        let mut modules = Modules::default();
        for (name, content) in all {
            let file = dir.path().join(format!("{name}.ko"));
            std::fs::write(&file, content).unwrap();
            modules.add(name, file);
        }
        (dir, modules)
    }

    fn info(needs: &str) -> Vec<u8> {
        format!("ELF\0license=GPL\0depends={needs}\0intree=Y\0").into_bytes()
    }

    fn names(found: &[Module]) -> Vec<&str> {
        found.iter().map(|one| &*one.name).collect()
    }

    #[test]
    fn what_a_module_needs_comes_before_it() {
        let wanted = ["virtio", "virtio_ring"];
        let (none, ring, own) = (info(""), info("virtio_ring"), info("virtio"));
        let (_dir, old) = kernel(&[("virtio", &none), ("virtio_ring", &own)]);
        let order = old.in_order(&wanted, &[]).unwrap();
        assert_eq!(names(&order), ["virtio", "virtio_ring"]);
        let (_dir, new) = kernel(&[("virtio", &ring), ("virtio_ring", &none)]);
        let order = new.in_order(&wanted, &[]).unwrap();
        assert_eq!(names(&order), ["virtio_ring", "virtio"]);
    }

    #[test]
    fn needs_come_along_and_what_was_loaded_does_not() {
        let (none, two) = (info(""), info("b,c-d"));
        let (e, b) = (info("e"), info("b"));
        let all: [(&str, &[u8]); 5] = [
            ("a", &two),
            ("b", &none),
            ("c-d", &e),
            ("e", &none),
            ("x", &b),
        ];
        let (_dir, all) = kernel(&all);
        let first = all.in_order(&["a"], &[]).unwrap();
        assert_eq!(names(&first), ["b", "e", "c_d", "a"]);
        let then = all.in_order(&["x", "a"], &first).unwrap();
        assert_eq!(names(&then), ["x"]);
    }

    #[test]
    fn what_is_built_in_needs_no_file_and_what_is_nowhere_is_named() {
        let b = info("b");
        let (_dir, mut all) = kernel(&[("a", &b)]);
        let lacking = all.in_order(&["a"], &[]).unwrap_err();
        assert!(matches!(lacking, Lacking::Module(name) if name == "b"));
        all.built_in("kernel/drivers/b.ko\nkernel/x/virtio-blk.ko.xz\n\nrubbish\n");
        let order = all.in_order(&["a", "virtio_blk"], &[]).unwrap();
        assert_eq!(names(&order), ["a"]);
        let lacking = all.in_order(&["c"], &[]).unwrap_err();
        assert!(matches!(lacking, Lacking::Module(name) if name == "c"));
    }

    #[test]
    fn modules_that_need_each_other_and_rubbish_have_an_end() {
        let (a, b) = (info("a"), info("b"));
        let (_dir, all) = kernel(&[("a", &b), ("b", &a)]);
        assert_eq!(names(&all.in_order(&["a"], &[]).unwrap()), ["b", "a"]);
        let long = [b"\0depends=".as_slice(), &[0xff; 10_000]].concat();
        let rubbish: [(&str, &[u8]); 3] = [("a", b"\0depends="), ("b", b""), ("c", &long)];
        let (_dir, rubbish) = kernel(&rubbish);
        assert_eq!(
            names(&rubbish.in_order(&["a", "b"], &[]).unwrap()),
            ["a", "b"]
        );
        assert!(rubbish.in_order(&["c"], &[]).is_err());
    }
}
