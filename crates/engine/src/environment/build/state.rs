//! One stage: what it starts from, and what its instructions have made of it.

use super::keys::Key;
use motu_core::Error;
use motu_dockerfile::{Command, Step};
use motu_environments::{ImageInfo, Workplace};
use std::collections::BTreeMap;

/// What runs commands when an image does not say.
const SHELL: [&str; 2] = ["/bin/sh", "-c"];

/// A stage that is being built, or was.
#[derive(Debug)]
pub(super) struct Stage {
    /// Its number, or the environment it is.
    pub(super) label: String,
    /// The digest of the installed tree below all layers; nothing for `scratch`.
    pub(super) base: Option<String>,
    pub(super) base_image: Option<ImageInfo>,
    pub(super) image: ImageInfo,
    pub(super) layers: Vec<(String, u64)>,
    /// How many layers the tree has.
    pub(super) applied: usize,
    pub(super) place: Option<Workplace>,
    pub(super) key: Key,
    pub(super) args: BTreeMap<String, String>,
    pub(super) has_cmd: bool,
}

impl Stage {
    pub(super) fn new(base: Option<String>, image: ImageInfo, key: Key) -> Stage {
        Stage {
            label: String::new(),
            base,
            base_image: Some(image.clone()),
            image,
            layers: Vec::new(),
            applied: 0,
            place: None,
            key,
            args: BTreeMap::new(),
            has_cmd: false,
        }
    }

    /// A stage that goes on where another one ended.
    pub(super) fn after(&self) -> Stage {
        Stage {
            label: String::new(),
            base: self.base.clone(),
            base_image: self.base_image.clone(),
            image: self.image.clone(),
            layers: self.layers.clone(),
            applied: 0,
            place: None,
            key: self.key.clone(),
            args: BTreeMap::new(),
            has_cmd: false,
        }
    }

    pub(super) fn shell(&self) -> Vec<String> {
        match self.image.shell.is_empty() {
            true => SHELL.map(String::from).to_vec(),
            false => self.image.shell.clone(),
        }
    }

    /// A command as images keep it.
    pub(super) fn words(&self, command: &Command) -> Vec<String> {
        match command {
            Command::Exec(words) => words.clone(),
            Command::Shell(text) => {
                let mut words = self.shell();
                words.push(text.clone());
                words
            }
        }
    }

    /// A path of the tree: relative ones begin in the working directory.
    pub(super) fn absolute(&self, path: &str) -> String {
        match path.starts_with('/') {
            true => path.to_string(),
            false => format!(
                "{}/{path}",
                self.image.default_workdir.trim_end_matches('/')
            ),
        }
    }
}

/// An error of a step, with its place.
pub(super) fn failed_at(file: &str, step: &Step, error: Error) -> Error {
    let mut details = error.details.clone();
    if !details.is_object() {
        details = serde_json::json!({});
    }
    details["file"] = file.into();
    details["line"] = step.line.into();
    details["step"] = step.text.clone().into();
    Error {
        message: format!(
            "{file}, line {}: {}: {}",
            step.line, step.text, error.message
        ),
        ..error
    }
    .details(details)
}
