//! Where the requests of `border_h1` and `border_h2` go: one place with one secret, everything allowed.

use motu_border::http::Request;
use motu_border::{Gate, Place, Secret, Value};
use std::sync::Arc;

pub(crate) struct Yes;

impl Gate for Yes {
    fn ask(&mut self, _: &Request, _: &[String]) -> bool {
        true
    }
}

pub(crate) fn place() -> Place {
    Place {
        name: "a.example".to_owned(),
        port: 443,
        secrets: Arc::new(vec![Secret {
            name: "key".to_owned(),
            placeholder: "motu_placeholder_0".to_owned(),
            value: Value::new("value"),
            body: true,
            aws: false,
        }]),
    }
}
