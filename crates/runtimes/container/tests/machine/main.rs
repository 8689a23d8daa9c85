//! Real machines, made as root with the real guest.

mod life;
mod limits;
mod programs;
mod rootless;
mod support;
mod walls;
