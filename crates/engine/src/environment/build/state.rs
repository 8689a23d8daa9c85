//! One stage of a build: its base, and the result of its instructions so far.

use super::keys::Key;
use motu_core::Error;
use motu_dockerfile::{Command, Step};
use motu_environments::{Hold, ImageInfo, Workplace};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The default shell.
const SHELL: [&str; 2] = ["/bin/sh", "-c"];

/// A stage that is being built, or has been.
#[derive(Debug)]
pub(super) struct Stage {
    /// The stage's number, or the name of its environment.
    pub(super) label: String,
    /// The installed tree below all layers, which stays meanwhile; nothing for `scratch`.
    pub(super) base: Option<Arc<Hold>>,
    pub(super) base_image: Option<ImageInfo>,
    pub(super) image: ImageInfo,
    pub(super) layers: Vec<(String, u64)>,
    /// How many of the layers have been applied to the tree.
    pub(super) applied: usize,
    pub(super) place: Option<Workplace>,
    pub(super) key: Key,
    pub(super) args: BTreeMap<String, String>,
    pub(super) has_cmd: bool,
}

impl Stage {
    pub(super) fn new(base: Option<Arc<Hold>>, image: ImageInfo, key: Key) -> Stage {
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

    /// The digest of the environment it begins with.
    pub(super) fn base(&self) -> Option<&str> {
        self.base.as_ref().map(|base| base.digest())
    }

    /// A new stage on top of this one.
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

    /// A command as image settings store it.
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

    /// Makes a path absolute; relative ones start in the working directory.
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

/// Adds the step and its place to an error.
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
