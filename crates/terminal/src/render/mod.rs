//! Pictures of a screen: escapes, HTML, SVG, PNG. Text is [`crate::screen::View::text`].

mod ansi;
mod canvas;
mod fonts;
mod layout;
mod markup;
mod png;

pub use ansi::{lines as ansi_lines, redraw};
pub use markup::{html, svg};
pub use png::{Picture, picture, png};
