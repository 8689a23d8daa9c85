//! How large a machine is.

use serde::{Deserialize, Serialize};

/// How large a machine is. What is missing is the host's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Size {
    /// CPUs it may use; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcpu_count: Option<u64>,
    /// Memory it may use; default 1024.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_mib: Option<u64>,
    /// What it may write to its disk; default 10240.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mib: Option<u64>,
}

impl Size {
    /// A size with this much memory and disk, in MiB.
    pub fn of(mem_mib: u64, disk_mib: u64) -> Size {
        Size {
            mem_mib: Some(mem_mib),
            disk_mib: Some(disk_mib),
            ..Size::default()
        }
    }

    /// This size, with what it leaves open taken from another.
    pub fn or(self, usual: Size) -> Size {
        Size {
            vcpu_count: self.vcpu_count.or(usual.vcpu_count),
            mem_mib: self.mem_mib.or(usual.mem_mib),
            disk_mib: self.disk_mib.or(usual.disk_mib),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::BuildRequest;
    use crate::call::CallLimits;
    use crate::sandbox::CreateSandbox;
    use crate::template::TemplateDefinition;
    use crate::workspace::CreateWorkspace;
    use serde::de::DeserializeOwned;

    fn check<T: DeserializeOwned + Serialize>(size: impl Fn(&T) -> Size) {
        let text = r#"{"vcpu_count": 3, "mem_mib": 64, "disk_mib": 32}"#;
        let request: T = serde_json::from_str(text).unwrap();
        assert_eq!(size(&request).vcpu_count, Some(3));
        let written = serde_json::to_value(&request).unwrap();
        assert_eq!(
            (&written["mem_mib"], &written["disk_mib"]),
            (&64.into(), &32.into())
        );
        assert_eq!(written.get("size"), None);
        let empty = serde_json::from_str::<T>("{}").unwrap();
        assert_eq!(size(&empty), Size::default());
        for (text, refusal) in [
            (r#"{"mem_mib": 64, "colour": 1}"#, "unknown field `colour`"),
            (r#"{"size": {"mem_mib": 64}}"#, "unknown field `size`"),
            (r#"{"mem_mib": -1}"#, "invalid value"),
            (r#"{"mem_mib": "64"}"#, "invalid type"),
            (
                r#"{"mem_mib": 64, "mem_mib": 65}"#,
                "duplicate field `mem_mib`",
            ),
        ] {
            let error = serde_json::from_str::<T>(text).err().unwrap().to_string();
            assert!(error.contains(refusal), "{text}: {error}");
        }
    }

    #[test]
    fn requests_have_it_among_their_own_fields() {
        check::<CreateSandbox>(|ask| ask.size);
        check::<CreateWorkspace>(|ask| ask.size);
        check::<TemplateDefinition>(|ask| ask.size);
        check::<BuildRequest>(|ask| ask.size);
        check::<CallLimits>(|ask| ask.size);
    }

    #[test]
    fn what_is_said_wins() {
        let usual = Size {
            vcpu_count: Some(2),
            ..Size::of(256, 512)
        };
        let own = Size {
            mem_mib: Some(64),
            ..Size::default()
        };
        assert_eq!(own.or(usual).mem_mib, Some(64));
        assert_eq!(own.or(usual).vcpu_count, Some(2));
        assert_eq!(Size::default().or(usual), usual);
    }
}
