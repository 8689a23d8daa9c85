//! Real virtual machines under software emulation, from boot to nothing left.

mod copies;
mod life;
mod support;
mod templates;
