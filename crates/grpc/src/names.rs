//! Template names from the two UUIDs that a control plane uses.
//!
//! A template's name has at most 63 characters, so the UUIDs are encoded in base 36:
//! `u.TEAM.TEMPLATE`. Both can be decoded from the name.

use motu_core::{Error, Result};
use uuid::Uuid;

const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// The name of the template in a message; `None` means the configured environment.
pub fn template(name: &str, team_id: &str, template_id: &str) -> Result<Option<String>> {
    if team_id.is_empty() && template_id.is_empty() {
        return Ok((!name.is_empty() && name != "minimal").then(|| name.to_string()));
    }
    let team = parse("team_id", team_id)?;
    let template = parse("template_id", template_id)?;
    if team.is_nil() && template.is_nil() {
        return Ok(None);
    }
    Ok(Some(format!(
        "u.{}.{}",
        write(team.as_u128()),
        write(template.as_u128())
    )))
}

/// Decodes the UUIDs of a name: `team_id` and `template_id`.
pub fn uuids(name: &str) -> Option<(String, String)> {
    let (team, template) = name.strip_prefix("u.")?.split_once('.')?;
    let text = |digits| Some(Uuid::from_u128(read(digits)?).to_string());
    Some((text(team)?, text(template)?))
}

/// Parses a UUID. An empty id is the nil UUID, which stands for the platform.
fn parse(field: &str, text: &str) -> Result<Uuid> {
    if text.is_empty() {
        return Ok(Uuid::nil());
    }
    Uuid::try_parse(text).map_err(|_| {
        let shown: String = text.chars().take(60).collect();
        Error::invalid(format!("{field} {shown:?} is not a UUID"))
            .hint("32 hexadecimal digits, with or without dashes")
    })
}

fn write(mut number: u128) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(DIGITS[(number % 36) as usize]);
        number /= 36;
        if number == 0 {
            break;
        }
    }
    digits
        .iter()
        .rev()
        .map(|digit| char::from(*digit))
        .collect()
}

fn read(digits: &str) -> Option<u128> {
    u128::from_str_radix(digits, 36)
        .ok()
        .filter(|number| write(*number) == digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: &str = "00000000-0000-0000-0000-000000000000";
    const LARGEST: &str = "ffffffff-ffff-ffff-ffff-ffffffffffff";

    #[test]
    fn two_uuids_are_a_name_and_back() {
        for (team, id) in [(LARGEST, LARGEST), (ZERO, LARGEST), (LARGEST, ZERO)] {
            let name = template("ignored", team, id).unwrap().unwrap();
            assert!(name.len() <= 63, "{name}");
            assert_eq!(uuids(&name), Some((team.to_string(), id.to_string())));
        }
    }

    #[test]
    fn zeros_and_nothing_mean_the_configured_environment() {
        assert_eq!(template("", "", "").unwrap(), None);
        assert_eq!(template("minimal", "", "").unwrap(), None);
        assert_eq!(template("other", ZERO, ZERO).unwrap(), None);
        assert_eq!(template("mine", "", "").unwrap().as_deref(), Some("mine"));
        assert!(template("", "no uuid", "").is_err());
    }

    #[test]
    fn other_names_are_no_uuids() {
        for name in ["web", "u.", "u.1", "u.01.2", "u.A.2", "u.-1.2"] {
            assert_eq!(uuids(name), None, "{name}");
        }
    }
}
