//! Rows of templates. They survive a power cut.

use super::Store;
use super::json::{readable, to_json};
use motu_core::Result;
use motu_core::template::Template;
use rusqlite::params;

impl Store {
    /// Stores a template; replaces one with its name.
    pub async fn put_template(&self, template: &Template) -> Result<()> {
        let (key, json) = (template.name.clone(), to_json(template)?);
        self.with_durable("template", move |transaction| {
            transaction.execute(
                "INSERT OR REPLACE INTO templates VALUES (?1, ?2)",
                params![key, json],
            )?;
            Ok(())
        })
        .await
    }

    pub async fn delete_template(&self, name: &str) -> Result<()> {
        let key = name.to_string();
        self.with_durable("template", move |transaction| {
            transaction.execute("DELETE FROM templates WHERE name = ?1", params![key])?;
            Ok(())
        })
        .await
    }

    pub async fn templates(&self) -> Result<Vec<Template>> {
        let found = self.with("templates", |transaction| {
            let mut query = transaction.prepare_cached("SELECT template FROM templates")?;
            let rows = query.query_map([], |row| row.get::<_, String>(0))?;
            rows.collect::<rusqlite::Result<Vec<String>>>()
        });
        Ok(readable("template", &found.await?))
    }
}
