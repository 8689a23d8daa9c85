//! What environments are called that callers make, and whose they are.

use motu_core::hint;
use motu_core::hint::verb;
use motu_core::project::owner_of_new;
use motu_core::{Error, ErrorKind, Project, Result};
use motu_environments::Title;

/// What an environment is called that an owner makes under a name, and whose it is.
pub(crate) fn title(owner: &str, name: &str) -> Title {
    let owner = owner_of_new(owner, name);
    match Project::of_owner(&owner) {
        None => Title::of_host(name),
        Some(project) => Title {
            name: project.complete(name),
            short: project.short(name).to_string(),
            owner,
            made_for: None,
        },
    }
}

/// The image that an owner means who pulls a name, and what it will be called: in a project it is
/// the project's own.
pub(crate) fn pulled(owner: &str, name: &str) -> Result<(String, Option<Title>)> {
    let Some(project) = Project::of_owner(owner) else {
        return Ok((name.to_string(), None));
    };
    let image = project.short(name);
    check_place(image)?;
    let full = motu_environments::full_name(image);
    let title = full.map(|full| title(owner, &full));
    Ok((image.to_string(), title))
}

/// Refuses to read files of the host for a project.
pub(crate) fn check_place(name: &str) -> Result<()> {
    match motu_environments::reads_host_files(name) {
        false => Ok(()),
        true => Err(Error::new(
            ErrorKind::Denied,
            "environments in files of the host are for callers of the local socket",
        )
        .hint(hint!["send the archive: ", verb("import_environment")])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_in_the_names_of_their_owner() {
        for (owner, name, stored, short, whose) in [
            ("uid:0", "team/py:1", "team/py:1", "team/py:1", ""),
            ("uid:0", "acme--py:1", "acme--py:1", "py:1", "project:acme"),
            (
                "project:acme",
                "team/py:1",
                "acme--team/py:1",
                "team/py:1",
                "project:acme",
            ),
            (
                "project:acme",
                "acme--oci:py",
                "acme--oci:py",
                "oci:py",
                "project:acme",
            ),
            (
                "project:acme",
                "beta--py",
                "acme--beta--py",
                "beta--py",
                "project:acme",
            ),
        ] {
            let title = title(owner, name);
            let found = (&*title.name, &*title.short, &*title.owner);
            assert_eq!(found, (stored, short, whose), "{owner} {name}");
        }
    }

    #[test]
    fn what_a_project_pulls_is_its_own() {
        let (image, title) = pulled("project:acme", "acme--python:3").unwrap();
        assert_eq!(image, "python:3");
        let title = title.unwrap();
        assert_eq!(title.name, "acme--docker.io/library/python:3");
        assert_eq!(title.owner, "project:acme");
        assert_eq!(
            pulled("uid:0", "python:3").unwrap(),
            ("python:3".to_string(), None)
        );
        for refused in ["tar:/etc/x.tar", "acme--tar:/etc/x.tar", "acme--oci:/x"] {
            let error = pulled("project:acme", refused).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Denied, "{refused}");
        }
    }
}
