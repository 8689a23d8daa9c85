//! Lists in pages: at most so many of a list, and where the next ones begin.
//!
//! The gate cuts every list, after it left out what its caller may not see: so pages are the same
//! on every face. A cursor is the place of the last one that was given, not a count: what comes
//! and goes between two pages neither repeats nor hides what stays. Who makes a long list may look
//! at its page ([`Page::stretch`]) and give the gate no more than it needs to cut it.

use crate::{Error, Result, hint, hint::field, limits};
use serde::{Deserialize, Serialize};

/// Which part of a list is wanted; all of it where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Page {
    /// Who asks, where a list is long and its page is read alone. Said by the gate.
    #[serde(skip)]
    pub owner: String,
    /// At most so many (`page_items`). The list is then in the order of its pages: by name or id;
    /// what is listed by its age, by that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The `next_cursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// What a page needs of a list: the first ones after a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch<K> {
    /// Only what comes after this place.
    pub after: Option<K>,
    /// One more than the page has: it tells whether there is a next page.
    pub most: usize,
}

impl Page {
    /// What this page needs of its list; `None` is all of it.
    pub fn stretch<K: serde::de::DeserializeOwned>(&self) -> Result<Option<Stretch<K>>> {
        if !self.cuts() {
            return Ok(None);
        }
        let after = self.cursor.as_deref().map(place_of).transpose()?;
        let most = limits::PAGE_ITEMS.resolve(self.limit)? as usize + 1;
        Ok(Some(Stretch { after, most }))
    }

    /// Whether less than the whole list is asked for.
    fn cuts(&self) -> bool {
        self.limit.is_some() || self.cursor.is_some()
    }

    /// Keeps this page of a list, and says where the next one begins, if there is one.
    pub fn cut<T, K>(&self, list: &mut Vec<T>, place: impl Fn(&T) -> K) -> Result<Option<String>>
    where
        K: Ord + Serialize + serde::de::DeserializeOwned,
    {
        let Some(Stretch { after, most }) = self.stretch::<K>()? else {
            return Ok(None);
        };
        let most = most - 1;
        let placed = list.drain(..).map(|one| (place(&one), one));
        let follows = |(place, _): &(K, T)| after.as_ref().is_none_or(|after| place > after);
        let mut found: Vec<(K, T)> = placed.filter(follows).collect();
        // Only the page itself is put in order: a long list is looked at once.
        if found.len() > most {
            found.select_nth_unstable_by(most, |a, b| a.0.cmp(&b.0));
            found.truncate(most);
            found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            let next = found
                .last()
                .map(|(place, _)| cursor_of(place))
                .transpose()?;
            list.extend(found.into_iter().map(|(_, one)| one));
            return Ok(next);
        }
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        list.extend(found.into_iter().map(|(_, one)| one));
        Ok(None)
    }
}

/// A place as a word that callers only carry.
pub fn cursor_of<K: Serialize>(place: &K) -> Result<String> {
    let text = serde_json::to_vec(place)
        .map_err(|error| Error::internal(format!("encode a cursor: {error}")))?;
    Ok(text.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The place that a cursor means.
pub fn place_of<K: serde::de::DeserializeOwned>(cursor: &str) -> Result<K> {
    let digits = cursor.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let text: Option<Vec<u8>> = match digits.len() % 2 {
        0 => digits.chunks(2).map(byte).collect(),
        _ => None,
    };
    let place = text.and_then(|text| serde_json::from_slice(&text).ok());
    place.ok_or_else(|| {
        Error::invalid("the cursor is none of this list")
            .hint(hint![
                "give ",
                field("cursor"),
                " as `next_cursor` had it, or leave it out to begin again"
            ])
            .details(serde_json::json!({"field": "cursor"}))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(limit: Option<u64>, cursor: Option<String>) -> Page {
        Page {
            limit,
            cursor,
            ..Page::default()
        }
    }

    #[test]
    fn without_a_page_a_list_stays_as_it_is() {
        let mut list = vec!["b".to_string(), "a".to_string()];
        let next = Page::default().cut(&mut list, String::clone).unwrap();
        assert_eq!((list, next), (vec!["b".to_string(), "a".to_string()], None));
    }

    #[test]
    fn a_cursor_of_another_list_is_refused() {
        for cursor in ["", "0", "zz", "7b7d", "é0"] {
            let asked = page(None, Some(cursor.to_string()));
            let error = asked.cut(&mut vec!["a".to_string()], String::clone);
            let error = error.unwrap_err();
            assert_eq!(error.kind, crate::ErrorKind::Invalid, "{cursor}");
            assert_eq!(error.details["field"], "cursor");
        }
        let error = page(Some(0), None).cut(&mut vec![1u64], |one| *one);
        assert_eq!(error.unwrap_err().details["limit"], "page_items");
    }

    proptest! {
        /// Whatever comes and goes between two pages: what stays is given once, in order.
        #[test]
        fn pages_are_complete_and_stable(
            stays in proptest::collection::btree_set(0u32..500, 0..60),
            goes in proptest::collection::vec(proptest::collection::btree_set(500u32..1000, 0..20), 1..8),
            limit in 1u64..9,
        ) {
            let mut seen = Vec::new();
            let mut asked = page(Some(limit), None);
            for turn in 0.. {
                let more = &goes[turn % goes.len()];
                // What stays is at even places, what comes and goes between them.
                let mut list: Vec<u32> = more.iter().map(|one| (one - 500) * 2 + 1).collect();
                list.extend(stays.iter().map(|one| one * 2));
                let next = asked.cut(&mut list, |one| *one).unwrap();
                prop_assert!(list.len() <= limit as usize);
                seen.extend(list);
                match next {
                    Some(next) => asked.cursor = Some(next),
                    None => break,
                }
            }
            prop_assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
            let kept: Vec<u32> = seen.into_iter().filter(|one| one % 2 == 0).collect();
            prop_assert_eq!(kept, stays.iter().map(|one| one * 2).collect::<Vec<_>>());
        }
    }
}
