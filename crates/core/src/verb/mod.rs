//! Verbs as data: each is declared once, in [`list`], and everything else is made from that.
//!
//! ```text
//!   declaration ──► a method of Service, Workspaces or Terminals   what the engine implements
//!               ──► a type, such as ForkSandbox                    a call that can be carried
//!               ──► Info                                           name, route, effect: documents,
//!                                                                  permissions, measurements
//! ```
//!
//! A carrier ([`Carry`]) takes whole calls somewhere else: over a socket, through the gate, into a
//! test's notebook. It says how one call of each shape travels and is a [`Service`] by that alone.

mod list;
#[cfg(any(test, feature = "recorder"))]
mod recorder;
mod shape;
mod terminals;

pub use crate::ask::{Ask, Nothing, Part};
pub use list::*;
#[cfg(any(test, feature = "recorder"))]
pub use recorder::{Recorder, Written};
pub use shape::{Carry, Changes, Pass, Value, Visit};
pub use terminals::*;

use crate::Result;
use crate::outcome::Outcome;
use futures_util::future::BoxFuture;

/// What a verb does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Only looks.
    Reads,
    /// Adds or changes; again does more.
    Changes,
    /// Changes; again is the same.
    Settles,
    /// Takes something away; again is the same.
    Destroys,
    /// Runs what the caller says, which may do anything inside a machine.
    Runs,
}

impl Effect {
    /// The name in the audit log.
    pub fn as_str(self) -> &'static str {
        match self {
            Effect::Reads => "reads",
            Effect::Changes => "changes",
            Effect::Settles => "settles",
            Effect::Destroys => "destroys",
            Effect::Runs => "runs",
        }
    }

    /// Whether doing it again changes nothing more.
    pub fn is_idempotent(self) -> bool {
        matches!(self, Effect::Reads | Effect::Settles | Effect::Destroys)
    }
}

/// How the answer travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// One JSON value.
    Value,
    /// Plain text, for people.
    Text,
    /// A live session; its first message is the request.
    Open,
    /// A live session with something that runs already.
    Attach,
    /// A stream of bytes, of the content type in [`Info::content`].
    Bytes,
    /// A file: its entry, and its bytes.
    File,
    /// One JSON value per line, for as long as somebody listens.
    Lines,
    /// A connection of plain bytes.
    Dial,
    /// The request is a stream of bytes; the answer is one JSON value.
    Upload,
    /// Steps as they happen, then one JSON value.
    Steps,
}

/// The method of HTTP that carries a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }
}

/// What is known of a verb without calling it.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Its name everywhere: permission, audit, metric, operation of the API.
    pub name: &'static str,
    pub family: &'static str,
    pub shape: Shape,
    pub effect: Effect,
    pub method: Method,
    /// With `{part}` where the call's own parts stand, in their order.
    pub path: &'static str,
    /// Of the answer when it worked.
    pub status: u16,
    /// The first line says what it does; the others say more.
    pub about: &'static str,
    /// The content type of an answer of bytes.
    pub content: &'static str,
}

impl Info {
    /// What an unprivileged caller needs to be granted, such as `sandboxes:fork_sandbox`.
    pub fn permission(&self) -> String {
        format!("{}:{}", self.family.replace(' ', "_"), self.name)
    }

    /// The names of its parts, in their order.
    pub fn parts(&self) -> impl Iterator<Item = &'static str> {
        let pieces = self.path.split('/');
        pieces.filter_map(|piece| piece.strip_prefix('{')?.strip_suffix('}'))
    }

    /// Where the request's own fields travel: in the address, or in the body.
    pub fn asks_in_query(&self) -> bool {
        match self.shape {
            Shape::Value | Shape::Text | Shape::Steps => {
                matches!(self.method, Method::Get | Method::Delete)
            }
            Shape::Open => false,
            Shape::Attach
            | Shape::Bytes
            | Shape::File
            | Shape::Lines
            | Shape::Dial
            | Shape::Upload => true,
        }
    }
}

/// One verb, as the type of its calls.
pub trait Verb: Sized + Send + 'static {
    const INFO: Info;
    /// What the caller says, besides what the call is about.
    type Ask: Ask;
    type Answer: Outcome + Send + 'static;
    /// What cannot be written down: a stream of content, a place for the steps.
    type Extra: Send + 'static;

    /// The forms of its parts, in their order.
    const FORMS: &'static [&'static str];

    /// Of this answer, in HTTP; mostly [`Info::status`].
    fn status(answer: &Self::Answer) -> u16;
    /// The parts of the address, in the order of [`Info::path`].
    fn parts(&self) -> Vec<String>;
    fn ask(&self) -> &Self::Ask;
    fn ask_mut(&mut self) -> &mut Self::Ask;
    /// A call, from the parts of an address and the request.
    fn read(parts: &[&str], ask: Self::Ask) -> Result<Self>;
    /// The sandbox or workspace it is about, as the caller wrote it.
    fn sandbox(&mut self) -> Option<&mut crate::SandboxId>;
    /// The name it is about, if its address has one.
    fn name(&mut self) -> Option<&mut String>;
    /// Completes the names in it that are those of a project, for a caller who sees only that one.
    fn within(&mut self, project: &crate::Project) -> Result<()>;
    /// Does it.
    fn on<'a>(
        self,
        backend: &'a dyn Backend,
        extra: Self::Extra,
    ) -> BoxFuture<'a, Result<Self::Answer>>;
}

/// Where calls arrive: whoever does the verbs of each trait.
pub trait Backend: Send + Sync + 'static {
    fn service(&self) -> &dyn Service;
    fn workspaces(&self) -> &dyn Workspaces;
    fn terminals(&self) -> &dyn Terminals;
}

/// All verbs in one: what a carrier has, and what faces hold.
pub trait Verbs: Service + Workspaces + Terminals {}

impl<T: Service + Workspaces + Terminals> Verbs for T {}

impl<T: Verbs> Backend for T {
    fn service(&self) -> &dyn Service {
        self
    }

    fn workspaces(&self) -> &dyn Workspaces {
        self
    }

    fn terminals(&self) -> &dyn Terminals {
        self
    }
}

/// Declares the verbs of one trait.
///
/// `SHAPE method = Type(parts; Ask + extra) -> Answer, METHOD "path" STATUS, Effect, "family";`
macro_rules! verbs {
    (
        $(#[$trait_meta:meta])*
        trait $trait:ident, by $by:ident, visit $visit:ident, table $table:ident
        $(, with { $($items:tt)* })?;
        $(
            $(#[doc = $doc:literal])+
            $shape:ident $method:ident = $verb:ident(
                $($part:ident: $part_type:ty),*
                $(; $ask:ty)?
                $(=> $extra:ident: $extra_type:ty)?
            ) -> $answer:ty,
            $http:ident $path:literal $status:literal $(or $found:literal unless $flag:ident)?,
            $effect:ident, $family:literal
            $(, $content:literal)?;
        )*
    ) => {
        $(#[$trait_meta])*
        #[async_trait::async_trait]
        pub trait $trait: Send + Sync + 'static {
            $(
                $(#[doc = $doc])+
                async fn $method(
                    &self,
                    $($part: &$part_type,)*
                    $(ask: $ask,)?
                    $($extra: $extra_type,)?
                ) -> $crate::Result<$answer>;
            )*
            $($($items)*)?
        }

        /// A carrier has every verb: it carries the call.
        #[async_trait::async_trait]
        impl<C: $crate::verb::Carry> $trait for C {
            $(
                async fn $method(
                    &self,
                    $($part: &$part_type,)*
                    $(ask: $ask,)?
                    $($extra: $extra_type,)?
                ) -> $crate::Result<$answer> {
                    let call = $verb {
                        $($part: ToOwned::to_owned($part),)*
                        ask: std::convert::identity(verbs!(@or $(ask as $ask)?)),
                    };
                    $crate::verb::Carry::$shape(self, call $(, $extra)?).await
                }
            )*
        }

        $(
            $(#[doc = $doc])+
            #[derive(Debug)]
            pub struct $verb {
                $(pub $part: <$part_type as ToOwned>::Owned,)*
                pub ask: verbs!(@type $($ask)?),
            }

            impl $crate::verb::Verb for $verb {
                const INFO: $crate::verb::Info = $crate::verb::Info {
                    name: stringify!($method),
                    family: $family,
                    shape: verbs!(@shape $shape),
                    effect: $crate::verb::Effect::$effect,
                    method: verbs!(@http $http),
                    path: $path,
                    status: $status,
                    about: concat!($($doc, "\n"),+),
                    content: concat!("" $(, $content)?),
                };
                type Ask = verbs!(@type $($ask)?);
                type Answer = $answer;
                type Extra = verbs!(@extra $($extra_type)?);
                const FORMS: &'static [&'static str] =
                    &[$(<$part_type as $crate::verb::Part>::FORM),*];

                fn status(answer: &$answer) -> u16 {
                    let _ = answer;
                    $(if !answer.$flag {
                        return $found;
                    })?
                    $status
                }

                fn parts(&self) -> Vec<String> {
                    vec![$(<$part_type as $crate::verb::Part>::text(&self.$part)),*]
                }

                fn ask(&self) -> &Self::Ask {
                    &self.ask
                }

                fn ask_mut(&mut self) -> &mut Self::Ask {
                    &mut self.ask
                }

                fn read(parts: &[&str], ask: Self::Ask) -> $crate::Result<Self> {
                    let parts = &mut parts.iter().copied();
                    let _ = &parts;
                    Ok($verb {
                        $($part: <$part_type as $crate::verb::Part>::read(parts.next().unwrap_or_default())?,)*
                        ask,
                    })
                }

                fn sandbox(&mut self) -> Option<&mut $crate::SandboxId> {
                    None $(.or(<$part_type as $crate::verb::Part>::sandbox(&mut self.$part)))*
                }

                fn name(&mut self) -> Option<&mut String> {
                    None $(.or(<$part_type as $crate::verb::Part>::name(&mut self.$part)))*
                }

                fn within(&mut self, project: &$crate::Project) -> $crate::Result<()> {
                    $(<$part_type as $crate::verb::Part>::within(&mut self.$part, $family, project)?;)*
                    $crate::verb::Ask::within(&mut self.ask, project)
                }

                fn on<'a>(
                    self,
                    backend: &'a dyn $crate::verb::Backend,
                    extra: Self::Extra,
                ) -> futures_util::future::BoxFuture<'a, $crate::Result<$answer>> {
                    let _ = &extra;
                    Box::pin(async move {
                        backend.$by().$method(
                            $(&self.$part,)*
                            $(verbs!(@given self.ask, $ask),)?
                            $(verbs!(@given extra, $extra_type),)?
                        ).await
                    })
                }
            }
        )*

        #[doc = concat!("The verbs of [`", stringify!($trait), "`].")]
        pub const $table: &[&$crate::verb::Info] =
            &[$(&<$verb as $crate::verb::Verb>::INFO),*];

        #[doc = concat!("Shows every verb of [`", stringify!($trait), "`] to a visitor.")]
        pub fn $visit(visitor: &mut impl $crate::verb::Visit) {
            $(visitor.$shape::<$verb>();)*
        }
    };
    (@or) => { $crate::verb::Nothing {} };
    (@or $ask:ident as $type:ty) => { $ask };
    (@given $value:expr, $type:ty) => { $value };
    (@type) => { $crate::verb::Nothing };
    (@type $type:ty) => { $type };
    (@extra) => { () };
    (@extra $type:ty) => { $type };
    (@http GET) => { $crate::verb::Method::Get };
    (@http POST) => { $crate::verb::Method::Post };
    (@http PUT) => { $crate::verb::Method::Put };
    (@http PATCH) => { $crate::verb::Method::Patch };
    (@http DELETE) => { $crate::verb::Method::Delete };
    (@shape value) => { $crate::verb::Shape::Value };
    (@shape text) => { $crate::verb::Shape::Text };
    (@shape open) => { $crate::verb::Shape::Open };
    (@shape attach) => { $crate::verb::Shape::Attach };
    (@shape bytes) => { $crate::verb::Shape::Bytes };
    (@shape file) => { $crate::verb::Shape::File };
    (@shape lines) => { $crate::verb::Shape::Lines };
    (@shape dial) => { $crate::verb::Shape::Dial };
    (@shape upload) => { $crate::verb::Shape::Upload };
    (@shape steps) => { $crate::verb::Shape::Steps };
}
pub(crate) use verbs;

/// Every verb there is.
pub fn all() -> impl Iterator<Item = &'static Info> {
    let tables = [SERVICE_VERBS, WORKSPACE_VERBS, TERMINAL_VERBS];
    tables.into_iter().flatten().copied()
}

/// Shows every verb to a visitor.
pub fn visit(visitor: &mut impl Visit) {
    visit_service(visitor);
    visit_workspaces(visitor);
    visit_terminals(visitor);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_verb_has_a_name_and_an_address_of_its_own() {
        let mut names = HashSet::new();
        let mut addresses = HashSet::new();
        for verb in all() {
            assert!(names.insert(verb.name), "{} is declared twice", verb.name);
            assert!(verb.path.starts_with("/v1/"), "{}", verb.name);
            assert!(!verb.about.trim().is_empty(), "{}", verb.name);
            // A live session shares its address with the answer that waits for the end.
            let live = verb.shape == Shape::Open;
            let address = (verb.method.as_str(), verb.path, live);
            assert!(
                addresses.insert(address),
                "{} shares {address:?}",
                verb.name
            );
        }
        assert!(names.len() > 80, "{}", names.len());
    }

    #[test]
    fn what_only_looks_is_a_get() {
        for verb in all() {
            if verb.method == Method::Get && verb.shape != Shape::Dial {
                assert_eq!(verb.effect, Effect::Reads, "{}", verb.name);
            }
            if verb.method == Method::Delete {
                assert_eq!(verb.effect, Effect::Destroys, "{}", verb.name);
            }
        }
    }

    #[tokio::test]
    async fn a_recorder_has_every_verb_and_answers_those_it_was_told() {
        let recorder = Recorder::default();
        let service: &dyn crate::Service = &recorder;
        let id = crate::SandboxId::parse("sb-a").unwrap();
        recorder.on(|call: DialUnix| Err(crate::Error::unavailable(call.id.to_string())));
        let path = crate::files::GuestPath::new("/run/x").unwrap();
        let refused = service.dial_unix(&id, path.into()).await;
        assert_eq!(refused.err().unwrap().message, "sb-a");
        let unknown = service.pause_sandbox(&id).await.unwrap_err();
        assert_eq!(unknown.kind, crate::ErrorKind::Unsupported);
        assert_eq!(
            recorder.asked::<DialUnix>(),
            [serde_json::json!({"path": "/run/x"})]
        );
        assert_eq!(recorder.take()[1].0, "pause_sandbox");
        recorder.always::<Plan>("1. nothing".to_string());
        let plan = service.plan(Default::default()).await.unwrap();
        assert_eq!(plan, "1. nothing");
        let names: Vec<_> = recorder.written().iter().map(|call| call.0).collect();
        assert_eq!(names, ["plan"]);
    }

    #[test]
    fn a_call_is_written_and_read_back() {
        let parts = ["sb-a", "web"];
        let call = StatusService::read(&parts, Nothing {}).unwrap();
        assert_eq!(call.parts(), parts);
        assert!(StatusService::read(&["sb-a", ""], Nothing {}).is_err());
        assert!(StatusService::read(&["SB A", "web"], Nothing {}).is_err());
    }
}
