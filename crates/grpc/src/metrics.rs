//! What sandboxes have used.

use crate::agent::Agent;
use crate::wire::{
    FlushSandboxMetricsRequest, FlushSandboxMetricsResponse, GetSandboxMetricsRequest,
    GetSandboxMetricsResponse,
};
use motu_core::hint::verb;
use motu_core::{Error, Result, hint};

impl Agent {
    pub async fn get_metrics(
        self,
        _: GetSandboxMetricsRequest,
    ) -> Result<GetSandboxMetricsResponse> {
        Err(unmeasured())
    }

    pub async fn flush_metrics(
        self,
        _: FlushSandboxMetricsRequest,
    ) -> Result<FlushSandboxMetricsResponse> {
        Err(unmeasured())
    }
}

fn unmeasured() -> Error {
    Error::unsupported("measurements of the past are not kept yet")
        .hint(hint![verb("metrics"), " shows what a sandbox uses now"])
}
