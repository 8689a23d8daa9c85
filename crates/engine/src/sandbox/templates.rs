//! The table of templates, with a lock for each name.

use crate::quota::Named;
use motu_core::config::QuotaConfig;
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::template::Template;
use motu_core::{Error, ErrorKind, Result, SandboxId, limits};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::OwnedMutexGuard;

/// The lock of one name: held while its template is prepared or removed.
pub type Turn = OwnedMutexGuard<()>;

#[derive(Debug, Default)]
pub struct TemplateTable {
    quota: QuotaConfig,
    all: Mutex<BTreeMap<String, Template>>,
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl TemplateTable {
    pub fn new(quota: QuotaConfig) -> TemplateTable {
        TemplateTable {
            quota,
            ..TemplateTable::default()
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Template>> {
        lock(&self.all)
    }

    /// Waits for the lock of a name.
    pub async fn turn(&self, name: &str) -> Turn {
        let turn = {
            let mut turns = lock(&self.turns);
            // Drop locks that are neither held nor waited for.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(name.to_string()).or_default().clone()
        };
        turn.lock_owned().await
    }

    /// The template with this name, or an error that suggests similar names.
    pub fn get(&self, name: &str) -> Result<Template> {
        let all = self.all();
        if let Some(found) = all.get(name) {
            return Ok(found.clone());
        }
        // Names of other projects are nobody's business.
        let project = motu_core::project::of_name(name);
        let names = all.keys().map(String::as_str);
        let names = names.filter(|known| motu_core::project::of_name(known) == project);
        let near = motu_environments::suggest(name, names);
        let hint = match near.as_slice() {
            [] => hint![verb("list_templates"), " shows them"],
            near => format!("did you mean {}?", near.join(" or ")).into(),
        };
        let name: String = name.chars().take(70).collect();
        Err(Error::new(
            ErrorKind::NotFound,
            format!("there is no template {name:?}"),
        )
        .hint(hint)
        .details(serde_json::json!({"template": name, "suggestions": near})))
    }

    pub fn list(&self) -> Vec<Template> {
        self.all().values().cloned().collect()
    }

    /// Checks that one more template may be added.
    pub fn check_room(&self, name: &str) -> Result<()> {
        self.room(&self.all(), name)
    }

    /// Adds or replaces a template; returns the replaced one.
    pub fn enter(&self, template: Template) -> Result<Option<Template>> {
        let mut all = self.all();
        self.room(&all, &template.name)?;
        Ok(all.insert(template.name.clone(), template))
    }

    /// Puts a template back that is in the store, whatever the limits are by now.
    pub fn restore(&self, template: Template) {
        self.all().insert(template.name.clone(), template);
    }

    fn room(&self, all: &BTreeMap<String, Template>, name: &str) -> Result<()> {
        let limit = limits::TEMPLATES;
        if all.contains_key(name) {
            return Ok(());
        }
        if all.len() as u64 >= limit.max {
            return Err(Error::limit(format!(
                "there are {} templates, which is {}",
                all.len(),
                limit.name
            ))
            .hint(hint!["remove one with ", verb("remove_template")])
            .details(serde_json::json!({"limit": limit.name, "max": limit.max})));
        }
        Named::Templates.check(&self.quota, name, all.keys().map(String::as_str))
    }

    /// Forgets a template that was not stored.
    pub fn forget(&self, name: &str) {
        self.all().remove(name);
    }

    /// Removes a template that nothing was made from. Whoever enters a sandbox of it waits
    /// meanwhile ([`TemplateTable::while_there`]).
    pub fn remove(&self, name: &str, user: impl FnOnce() -> Option<SandboxId>) -> Result<()> {
        let mut all = self.all();
        if let Some(user) = user() {
            return Err(
                Error::conflict(format!("the template {name} is used by {user}"))
                    .hint("remove the sandboxes and workspaces that came from it first")
                    .details(serde_json::json!({"template": name, "sandbox_id": user})),
            );
        }
        all.remove(name);
        Ok(())
    }

    /// Does something that makes a sandbox of a template, which is there until it is done.
    pub fn while_there<T>(&self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let all = self.all();
        if !all.contains_key(name) {
            return Err(Error::conflict(format!(
                "the template {name} was removed meanwhile"
            )));
        }
        work()
    }

    /// Digests of environments built by setups.
    pub fn digests(&self) -> Vec<String> {
        let all = self.all();
        let built = all.values().filter_map(|template| template.built.as_ref());
        built.map(|built| built.digest.clone()).collect()
    }
}

fn lock<T>(all: &Mutex<T>) -> MutexGuard<'_, T> {
    all.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::template::{TemplateDefinition, TemplatePool};

    fn template(name: &str) -> Template {
        Template {
            name: name.to_string(),
            owner: String::new(),
            version: 1,
            digest: String::new(),
            definition: TemplateDefinition::default(),
            built: None,
            saved: None,
            created_at: jiff::Timestamp::UNIX_EPOCH,
            updated_at: jiff::Timestamp::UNIX_EPOCH,
            pool: TemplatePool::default(),
        }
    }

    #[test]
    fn a_name_that_is_nearly_right_is_suggested() {
        let table = TemplateTable::default();
        table.enter(template("python-dev")).unwrap();
        let error = table.get("pyton-dev").unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotFound);
        assert_eq!(error.hint.as_deref(), Some("did you mean python-dev?"));
        assert_eq!(error.details["suggestions"][0], "python-dev");
    }

    #[test]
    fn there_is_an_end_to_templates_but_not_to_changing_one() {
        let table = TemplateTable::default();
        for number in 0..limits::TEMPLATES.max {
            table.enter(template(&format!("t{number}"))).unwrap();
        }
        let error = table.enter(template("more")).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Limit);
        assert!(table.enter(template("t0")).unwrap().is_some());
    }
}
