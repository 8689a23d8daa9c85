//! A part of a list: `--limit` and `--cursor`.

use crate::show;
use motu_core::Page;

/// Which part of a list is shown.
#[derive(Debug, clap::Args)]
pub struct PageArgs {
    /// Show at most so many, in the order of pages: of ids or names, or of age [default: all]
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,

    /// Go on where a page ended: its `next_cursor`
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
}

impl From<PageArgs> for Page {
    fn from(given: PageArgs) -> Page {
        Page {
            limit: given.limit,
            cursor: given.cursor,
            ..Page::default()
        }
    }
}

/// Says beside a table that there is more; in JSON the list says so itself.
pub fn more(json: bool, next_cursor: Option<&str>) {
    if let (false, Some(next)) = (json, next_cursor) {
        show::note(&format!("there are more: --cursor {next}\n"));
    }
}
