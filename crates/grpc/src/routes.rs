//! The routes of the gRPC services.

use crate::agent::Agent;
use crate::naps::Naps;
use crate::service;
use crate::wire::{DESCRIPTOR, SERVICE, events};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::post;
use motu_core::config::GrpcConfig;
use motu_core::{Error, Result};
use motu_gate::{Caller, Face, Gate, Ticket, Who};
use std::sync::Arc;
use tonic_health::ServingStatus;
use tonic_health::pb::FILE_DESCRIPTOR_SET as HEALTH_DESCRIPTOR;
use tonic_health::server::{HealthReporter, HealthService};
use tonic_reflection::server::Builder;

/// The header with the id of the call in the audit log.
const AUDIT_HEADER: &str = "motu-audit-id";
/// The same by the name that proxies and log collectors look for.
const REQUEST_HEADER: &str = "x-request-id";

/// The gate and the configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    pub gate: Gate,
    pub config: GrpcConfig,
}

/// The host agent, health and reflection. Requests carry their [`Caller`] as an extension; without
/// one the caller is an unknown remote.
pub async fn routes(settings: Settings) -> Result<Router> {
    let Settings { gate, config } = settings;
    let config = Arc::new(config);
    let naps = Arc::new(Naps::default());
    let agent = move |request: &Request| {
        let ticket = Ticket::default();
        let caller = introduced(request).with_ticket(ticket.clone());
        let agent = Agent::new(gate.clone(), caller, config.clone(), naps.clone());
        (agent, ticket)
    };
    let watching = agent.clone();
    let answer = move |request: Request| {
        let (agent, ticket) = agent(&request);
        async move { marked(service::serve(agent, request).await, &ticket) }
    };
    let watch = move |request: Request| {
        let (agent, ticket) = watching(&request);
        async move { marked(service::serve_events(agent, request).await, &ticket) }
    };
    let health = HealthReporter::new();
    for name in [SERVICE, events::SERVICE, ""] {
        health
            .set_service_status(name, ServingStatus::Serving)
            .await;
    }
    let health = HealthService::from_health_reporter(health);
    let health = tonic_health::pb::health_server::HealthServer::new(health);
    let reflection = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTOR)
            .register_encoded_file_descriptor_set(events::DESCRIPTOR)
            .register_encoded_file_descriptor_set(HEALTH_DESCRIPTOR)
    };
    let broken = |error| Error::internal(format!("the descriptor cannot be read: {error}"));
    Ok(Router::new()
        .route(&format!("/{SERVICE}/{{method}}"), post(answer))
        .route(&format!("/{}/{{method}}", events::SERVICE), post(watch))
        .route_service("/grpc.health.v1.Health/{method}", health)
        .route_service(
            "/grpc.reflection.v1.ServerReflection/{method}",
            reflection().build_v1().map_err(broken)?,
        )
        .route_service(
            "/grpc.reflection.v1alpha.ServerReflection/{method}",
            reflection().build_v1alpha().map_err(broken)?,
        ))
}

/// The caller, as set by the code that accepted the connection.
fn introduced(request: &Request) -> Caller {
    match request.extensions().get::<Caller>() {
        Some(told) => Caller::new(told.who.clone(), Face::Grpc).held_to(told.leave.clone()),
        None => Caller::new(Who::Remote, Face::Grpc),
    }
}

/// Adds the audit id of a call to its answer.
fn marked(mut response: Response<Body>, ticket: &Ticket) -> Response<Body> {
    let id = ticket.read();
    if let Some(id) = id.and_then(|id| http::HeaderValue::try_from(id.as_str()).ok()) {
        response.headers_mut().insert(REQUEST_HEADER, id.clone());
        response.headers_mut().insert(AUDIT_HEADER, id);
    }
    response
}
