//! A Merkle tree over the hashes of one batch (RFC 6962): one signature covers all of them, and a
//! few hashes prove that each is included.

use crate::Hash;
use crate::hex::{hex, unhex};
use ring::digest::{Context, SHA256};
use serde_json::{Value, json};

fn hashed(prefix: u8, parts: &[&[u8]]) -> Hash {
    let mut context = Context::new(&SHA256);
    context.update(&[prefix]);
    for part in parts {
        context.update(part);
    }
    let mut hash = Hash::default();
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

fn leaf(hash: &Hash) -> Hash {
    hashed(0, &[hash])
}

fn node(left: &Hash, right: &Hash) -> Hash {
    hashed(1, &[left, right])
}

/// The next level; a last node without a sibling moves up unchanged.
fn above(level: &[Hash]) -> Vec<Hash> {
    let pair = |pair: &[Hash]| match pair {
        [left, right] => node(left, right),
        alone => alone[0],
    };
    level.chunks(2).map(pair).collect()
}

/// The root over these hashes.
pub fn root(hashes: &[Hash]) -> Hash {
    let mut level: Vec<Hash> = hashes.iter().map(leaf).collect();
    while level.len() > 1 {
        level = above(&level);
    }
    level.first().copied().unwrap_or_default()
}

/// The audit path from the hash at `index` to the root.
pub fn path(hashes: &[Hash], mut index: usize) -> Vec<Value> {
    let mut level: Vec<Hash> = hashes.iter().map(leaf).collect();
    let mut steps = Vec::new();
    while level.len() > 1 {
        if let Some(other) = level.get(index ^ 1) {
            let side = if index.is_multiple_of(2) {
                "right"
            } else {
                "left"
            };
            steps.push(json!({"side": side, "hash": hex(other)}));
        }
        level = above(&level);
        index /= 2;
    }
    steps
}

/// The root that a path leads to, if the path is valid.
pub fn follow(hash: &Hash, path: &[Value]) -> Option<Hash> {
    // No batch needs this many steps.
    if path.len() > 64 {
        return None;
    }
    path.iter().try_fold(leaf(hash), |below, step| {
        let other = unhex(step.get("hash")?.as_str()?)?;
        match step.get("side")?.as_str()? {
            "right" => Some(node(&below, &other)),
            "left" => Some(node(&other, &below)),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_leads_to_the_root_and_to_no_other() {
        for count in 1..40u8 {
            let hashes: Vec<Hash> = (0..count).map(|byte| [byte; 32]).collect();
            for index in 0..hashes.len() {
                let path = path(&hashes, index);
                assert_eq!(follow(&hashes[index], &path), Some(root(&hashes)));
                assert_ne!(follow(&[99; 32], &path), Some(root(&hashes)));
            }
        }
    }
}
