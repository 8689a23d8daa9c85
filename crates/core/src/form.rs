//! The forms of texts in requests, as patterns for documents and schemas.
//!
//! Parsers decide; a pattern says the same to whoever writes a request. Tests here and the run of
//! generated requests against a live daemon hold the two together.

/// [`crate::SandboxId`].
pub const SANDBOX_ID: &str = "^[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?$";
/// [`crate::key::KeyId`].
pub const KEY_ID: &str = "^[a-z0-9]{12}$";
/// [`crate::audit::AuditId`].
pub const AUDIT_ID: &str = "^run_[0-9a-f]{32}$";
/// [`crate::TerminalId`].
pub const TERMINAL_ID: &str = r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]{1,128}$";
/// [`crate::files::GuestPath`].
pub const GUEST_PATH: &str = r"^/[^\u0000]*$";
/// The same, in base64: its first byte is a slash.
pub const GUEST_PATH_BASE64: &str = "^L(w==|[w-z0-9+/]([AEIMQUYcgkosw048]=|[A-Za-z0-9+/]{2}([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?))$";
/// Permission bits.
pub const MODE: &str = "^[0-7]{1,4}$";
/// A TCP port in an address.
pub const PORT: &str =
    "^([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$";
/// Of a secret of calls.
pub const SECRET_NAME: &str = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,40}$";
pub const POLICY_NAME: &str = "^[A-Za-z0-9_-]{1,64}$";
pub const TEMPLATE_NAME: &str = "^[a-z0-9][a-z0-9_.-]{0,40}$";
/// A host that a secret is bound to: a name, or all names below one. The last part begins with a
/// letter, as all that there are do: numbers are addresses.
pub const HOST: &str = r"^(\*\.)?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$";
/// A name of something else, in an address.
pub const NAME: &str = r"^[^\u0000]+$";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventKind, ReadEvents, Wanted};
    use crate::{SandboxId, Signal, TerminalId, audit::AuditId, files, key::KeyId};
    use proptest::prelude::*;
    use proptest::string::string_regex;

    /// Texts of a pattern, whose escapes are those of JSON Schema.
    fn texts(pattern: &str) -> impl Strategy<Value = String> + use<> {
        let bare = pattern.trim_start_matches('^').trim_end_matches('$');
        let mut parts = bare.split(r"\u");
        let mut ours = parts.next().unwrap().to_string();
        for part in parts {
            ours.push_str(&format!(r"\x{{{}}}{}", &part[..4], &part[4..]));
        }
        string_regex(&ours).unwrap()
    }

    proptest! {
        #[test]
        fn what_a_pattern_allows_is_accepted(
            sandbox in texts(SANDBOX_ID), key in texts(KEY_ID), call in texts(AUDIT_ID),
            terminal in texts(TERMINAL_ID), path in texts(GUEST_PATH), mode in texts(MODE),
            signal in texts(&crate::signal::form()), base64 in texts(GUEST_PATH_BASE64), port in texts(PORT), kinds in texts(&EventKind::form()),
        ) {
            prop_assert!(SandboxId::parse(&sandbox).is_ok());
            prop_assert!(KeyId::parse(&key).is_ok());
            prop_assert!(AuditId::parse(&call).is_ok());
            prop_assert!(TerminalId::parse(&terminal).is_ok(), "{terminal:?}");
            prop_assert!(files::GuestPath::new(path.into_bytes()).is_ok());
            prop_assert!(files::parse_mode(&mode).is_ok());
            let path = files::decode_base64(&base64);
            prop_assert!(path.as_ref().is_ok_and(|path| path.starts_with(b"/")), "{base64}: {path:?}");
            prop_assert!(Signal::try_from(signal).is_ok());
            prop_assert!(port.parse::<u16>().is_ok_and(|port| port > 0));
            let ask = ReadEvents { kind: Some(kinds), ..Default::default() };
            prop_assert!(Wanted::new(&ask).is_ok());
        }
    }

    #[test]
    fn what_a_pattern_leaves_out_is_refused() {
        for id in ["", "-a", "a-", "A", "a_b", &"a".repeat(49)] {
            assert!(SandboxId::parse(id).is_err(), "{id}");
        }
        assert!(TerminalId::parse("a\u{85}").is_err());
        assert!(Signal::try_from("65".to_string()).is_err());
    }
}
