//! What machines made with one key may be.

use crate::size::Size;
use crate::{Error, ErrorKind, Result, limits};
use serde::{Deserialize, Serialize};

/// What a key may ask for beside what its project and this host allow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Bounds {
    /// The only policies that its sandboxes, calls and builds may have; any when empty. No network
    /// is always allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// How large one machine may be; as large as the host allows where it says nothing.
    #[serde(skip_serializing_if = "unbounded")]
    pub most: Size,
}

fn unbounded(most: &Size) -> bool {
    *most == Size::default()
}

impl Bounds {
    pub fn none(&self) -> bool {
        *self == Bounds::default()
    }

    /// Checks the bounds of a new key themselves.
    pub fn check(&self) -> Result<()> {
        let most = limits::KEY_POLICIES;
        if self.policies.len() as u64 > most.max {
            return Err(Error::limit(format!(
                "a key names at most {} policies ({})",
                most.max, most.name
            ))
            .hint("name none for any"));
        }
        for (limit, asked) in [
            (limits::VCPU_COUNT, self.most.vcpu_count),
            (limits::MEM_MIB, self.most.mem_mib),
            (limits::DISK_MIB, self.most.disk_mib),
        ] {
            limit.resolve(asked)?;
        }
        Ok(())
    }

    /// Whether a machine of it may have this policy.
    pub fn allow_policy(&self, name: &str) -> Result<()> {
        match self.policies.is_empty() || self.policies.iter().any(|one| one == name) {
            true => Ok(()),
            false => Err(beyond(
                "policy",
                format!("the key may not use the policy {name}"),
                format!("its policies are: {}", self.policies.join(", ")),
            )),
        }
    }

    /// The size of a machine: what is asked for if that is allowed, and otherwise the host's usual
    /// size as far as it is allowed.
    pub fn size(&self, asked: Size, usual: Size) -> Result<Size> {
        let one = |field, asked: Option<u64>, usual: Option<u64>, most: Option<u64>| match (
            asked, most,
        ) {
            (Some(asked), Some(most)) if asked > most => Err(beyond(
                field,
                format!("the key allows machines with a {field} of at most {most}, not {asked}"),
                format!("ask for {most} or less"),
            )),
            (None, Some(most)) => Ok(usual.map(|usual| usual.min(most))),
            (asked, _) => Ok(asked.or(usual)),
        };
        let most = self.most;
        Ok(Size {
            vcpu_count: one(
                "vcpu_count",
                asked.vcpu_count,
                usual.vcpu_count,
                most.vcpu_count,
            )?,
            mem_mib: one("mem_mib", asked.mem_mib, usual.mem_mib, most.mem_mib)?,
            disk_mib: one("disk_mib", asked.disk_mib, usual.disk_mib, most.disk_mib)?,
        })
    }
}

fn beyond(field: &str, message: String, hint: String) -> Error {
    Error::new(ErrorKind::Denied, message)
        .hint(format!("{hint}; whoever runs this host makes other keys"))
        .details(serde_json::json!({"field": field, "code": "key"}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(vcpu_count: u64, mem_mib: u64, disk_mib: u64) -> Size {
        Size {
            vcpu_count: Some(vcpu_count),
            mem_mib: Some(mem_mib),
            disk_mib: Some(disk_mib),
        }
    }

    #[test]
    fn a_key_without_bounds_allows_everything() {
        let bounds = Bounds::default();
        assert!(bounds.none());
        assert_eq!(bounds.allow_policy("public"), Ok(()));
        let asked = size(8, 1 << 20, 1 << 20);
        assert_eq!(bounds.size(asked, size(1, 2, 3)), Ok(asked));
        assert_eq!(
            bounds.size(Size::default(), size(1, 2, 3)),
            Ok(size(1, 2, 3))
        );
    }

    #[test]
    fn what_is_asked_for_beyond_the_bounds_is_refused_and_the_usual_size_is_cut() {
        let bounds = Bounds {
            policies: vec!["packages".to_string()],
            most: size(2, 512, 1000),
        };
        assert_eq!(
            bounds.size(size(2, 512, 1000), Size::default()),
            Ok(size(2, 512, 1000))
        );
        for (asked, field) in [
            (size(3, 512, 1000), "vcpu_count"),
            (size(2, 513, 1000), "mem_mib"),
            (size(2, 512, 1001), "disk_mib"),
        ] {
            let error = bounds.size(asked, Size::default()).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Denied);
            assert_eq!(error.details["field"], field);
        }
        let usual = bounds.size(Size::default(), size(1, 1024, 10_240));
        assert_eq!(usual, Ok(size(1, 512, 1000)));
        assert_eq!(bounds.allow_policy("packages"), Ok(()));
        let error = bounds.allow_policy("public").unwrap_err();
        assert_eq!(
            (error.kind, &error.details["field"]),
            (ErrorKind::Denied, &"policy".into())
        );
    }

    #[test]
    fn bounds_are_bounded() {
        let most = |mem_mib| Bounds {
            most: Size {
                mem_mib: Some(mem_mib),
                ..Size::default()
            },
            ..Bounds::default()
        };
        assert!(most(0).check().is_err());
        assert_eq!(most(64).check(), Ok(()));
        let policies = vec!["a".to_string(); limits::KEY_POLICIES.max as usize + 1];
        let many = Bounds {
            policies,
            ..Bounds::default()
        };
        assert_eq!(many.check().unwrap_err().kind, ErrorKind::Limit);
    }
}
