//! Pictures of a screen: HTML, SVG, PNG. Text is [`crate::screen::View::text`].

mod markup;
pub mod palette;
mod png;

pub use markup::{html, svg};
pub use png::png;
