//! Lists of sandboxes. A page reads what it needs: of the living ones from the table, of those
//! that are gone from the store.

use super::Sandboxes;
use crate::driver::Age;
use motu_core::page::Stretch;
use motu_core::sandbox::{ListSandboxes, Sandbox};
use motu_core::verb::Ask;
use motu_core::{Project, Result};

impl Sandboxes {
    /// The sandboxes there are, without one-shots that have ended; those that are gone, too, if
    /// asked for. Of a page, one more than it has: the gate cuts it there.
    pub(crate) async fn list(&self, ask: &ListSandboxes) -> Result<Vec<Sandbox>> {
        self.leaving.gone().await;
        let owner = Project::of_owner(&ask.owner).map(|project| project.owner());
        let stretch: Option<Stretch<Age>> = ask.page().stretch()?;
        let live = match &stretch {
            Some(stretch) => self.table.page(owner.as_deref(), stretch),
            None => self.table.all(),
        };
        let mut list = self.described(live).await?;
        if ask.all {
            let store = &self.shared.store;
            list.extend(store.tombstones(owner, stretch.clone()).await?);
        }
        // One that is just being destroyed is in both.
        list.sort_by(|a, b| (a.created_at, &a.sandbox_id).cmp(&(b.created_at, &b.sandbox_id)));
        list.dedup_by(|later, first| later.sandbox_id == first.sandbox_id);
        if let Some(stretch) = &stretch {
            list.truncate(stretch.most);
        }
        Ok(list)
    }
}
