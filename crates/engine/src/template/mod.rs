//! Templates: machines that are described once, prepared ahead and asked for by name.
//!
//! ```text
//!   put ──► checks ──► pull its environment ──► admission once, as a check of the whole
//!             └──► setup: built like any environment ──► stored ──► the pool is notified
//!   save ─► a sandbox as it is: with its memory, or an environment of its files
//!   use ──► build the setup again if its result is gone ──► fill ──► admission
//! ```
//!
//! A stored template is complete: a daemon that is killed while it builds one has no trace of it,
//! or has the old one; finished steps are in the build cache.

mod checks;
mod saving;

use crate::blocking::blocking;
use crate::environment::Environments;
use crate::register::Register;
use crate::sandbox::{Sandboxes, fill};
use jiff::Timestamp;
use motu_core::build::BuildRequest;
use motu_core::hint;
use motu_core::hint::{field, setting};
use motu_core::lists::TemplateList;
use motu_core::project::of_name;
use motu_core::report::ProgressSink;
use motu_core::sandbox::CreateSandbox;
use motu_core::template::{
    RebuildTemplate, Template, TemplateBuild, TemplateDefinition, TemplatePool,
};
use motu_core::workspace::CreateWorkspace;
use motu_core::{Error, Isolation, Project, Result};
use motu_environments::{Environment, EnvironmentError};
use std::sync::Arc;

/// The runtime of setups that name none.
const BUILDER: &str = "container";

/// All templates.
#[derive(Debug)]
pub struct Templates {
    sandboxes: Arc<Sandboxes>,
    environments: Arc<Environments>,
    /// Each has a record of its own, which is on the disk before a change is answered.
    register: Register,
}

impl Templates {
    pub fn new(sandboxes: Arc<Sandboxes>, environments: Arc<Environments>) -> Templates {
        Templates {
            register: Register::templates(&sandboxes.shared.home),
            sandboxes,
            environments,
        }
    }

    /// Loads the stored templates.
    pub(crate) async fn adopt(&self) -> Result<()> {
        let store = &self.sandboxes.shared.store;
        let former = store.former_templates().await?.into_iter();
        let former = former.map(|template| (template.name.clone(), template));
        self.register.begin(store, former.collect()).await?;
        let register = self.register.clone();
        for (_, template) in blocking(move || register.all()).await?.read {
            self.sandboxes.templates.restore(template);
        }
        self.sweep_saved();
        Ok(())
    }

    /// A template with the state of its pool.
    pub(crate) fn get(&self, name: &str) -> Result<Template> {
        self.sandboxes
            .templates
            .get(name)
            .map(|found| self.with_pool(found))
    }

    pub(crate) fn list(&self) -> TemplateList {
        let all = self.sandboxes.templates.list().into_iter();
        TemplateList::new(all.map(|found| self.with_pool(found)).collect())
    }

    fn with_pool(&self, template: Template) -> Template {
        let pool = match template.definition.pool_size {
            0 => TemplatePool::default(),
            _ => self.sandboxes.pool.of_template(&template.name),
        };
        Template { pool, ..template }
    }

    /// Makes a template, or changes one.
    pub(crate) async fn put(
        &self,
        name: &str,
        ask: TemplateDefinition,
        progress: ProgressSink,
    ) -> Result<Template> {
        checks::name(name)?;
        checks::definition(&ask)?;
        let turn = self.sandboxes.templates.turn(name).await;
        self.sandboxes.templates.check_room(name)?;
        let before = self.sandboxes.templates.get(name).ok();
        if ask.pool_size > 0 && before.as_ref().is_some_and(|old| old.asleep().is_some()) {
            return Err(asleep("have machines that wait ready"));
        }
        let kept = self.prepare(name, ask, before, false, progress).await?;
        drop(turn);
        self.sandboxes.settle_pool().await;
        Ok(self.with_pool(kept))
    }

    /// Runs the setup of a template again.
    pub(crate) async fn build(
        &self,
        name: &str,
        ask: RebuildTemplate,
        progress: ProgressSink,
    ) -> Result<Template> {
        let turn = self.sandboxes.templates.turn(name).await;
        let before = self.sandboxes.templates.get(name)?;
        if before.asleep().is_some() {
            return Err(asleep("be built again"));
        }
        let definition = owned(&before);
        let kept = self.prepare(name, definition, Some(before), ask.no_cache, progress);
        let kept = kept.await?;
        drop(turn);
        self.sandboxes.settle_pool().await;
        Ok(self.with_pool(kept))
    }

    /// Removes a template that no sandbox came from. Its waiting machines end.
    pub(crate) async fn remove(&self, name: &str) -> Result<Template> {
        let turn = self.sandboxes.templates.turn(name).await;
        let gone = self.get(name)?;
        // A one-shot that has ended uses nothing any more.
        self.sandboxes.leaving.gone().await;
        let user = || self.sandboxes.user_of(name);
        self.sandboxes.templates.remove(name, user)?;
        let (register, removed) = (self.register.clone(), name.to_string());
        if let Err(error) = blocking(move || register.remove(&removed)).await {
            self.sandboxes.templates.restore(gone);
            return Err(error);
        }
        drop(turn);
        self.sandboxes.settle_pool().await;
        self.sandboxes.pool.forget_template(name);
        self.forget_built(gone.built.as_ref()).await;
        self.forget_saved(&gone).await;
        Ok(gone)
    }

    /// Builds what a definition describes and stores it. The caller holds the lock of the name.
    async fn prepare(
        &self,
        name: &str,
        mut definition: TemplateDefinition,
        before: Option<Template>,
        no_cache: bool,
        progress: ProgressSink,
    ) -> Result<Template> {
        // In a project, an image that is pulled for it gets a name of the project's.
        if self.uses_environments(definition.runtime.as_deref()) {
            let (owner, environment) = (&definition.owner, &definition.environment);
            self.sandboxes
                .installed(owner, environment, &progress)
                .await?;
            let meant = self.sandboxes.environment_of(owner, environment);
            definition.environment = meant.await?;
        }
        let digest = checks::digest(&definition)?;
        let called = environment_name(name, &digest);
        let built = self.build_setup(&definition, (name, called), no_cache, progress);
        let built = built.await?;
        let root = |built: &Option<TemplateBuild>| built.as_ref().map(|built| built.digest.clone());
        let now = Timestamp::now();
        let same = |old: &Template| old.digest == digest && root(&old.built) == root(&built);
        // Files that were saved stay the template's for as long as it starts from them.
        let starts_alike = |old: &&Template| match old.asleep() {
            Some(_) => same(old),
            None => old.definition.environment == definition.environment,
        };
        let saved = before.as_ref().filter(starts_alike);
        let saved = saved.and_then(|old| old.saved.clone());
        let template = Template {
            name: name.to_string(),
            owner: match &before {
                Some(old) => old.owner.clone(),
                None => definition.owner.clone(),
            },
            version: match &before {
                Some(old) if same(old) => old.version,
                Some(old) => old.version + 1,
                None => 1,
            },
            digest,
            definition,
            built,
            saved,
            created_at: before.as_ref().map_or(now, |old| old.created_at),
            updated_at: now,
            pool: TemplatePool::default(),
        };
        self.keep(&template, before.as_ref()).await?;
        if let Some(old) = before.as_ref().filter(|old| old.saved != template.saved) {
            self.forget_saved(old).await;
        }
        let old = before.and_then(|old| old.built);
        let current = template.built.as_ref().map(|built| &built.environment);
        let replaced = old.filter(|old| Some(&old.environment) != current);
        self.forget_built(replaced.as_ref()).await;
        Ok(template)
    }

    /// Writes a template down in place of the one before it.
    async fn keep(&self, template: &Template, before: Option<&Template>) -> Result<()> {
        // Enter the table first: if the caller goes away at the `await`, the record is being
        // written already, so both have the template.
        self.sandboxes.templates.enter(template.clone())?;
        let (register, kept) = (self.register.clone(), template.clone());
        let kept = blocking(move || register.put(&kept.name, &kept));
        if let Err(error) = kept.await {
            match before {
                Some(old) => self.sandboxes.templates.restore(old.clone()),
                None => self.sandboxes.templates.forget(&template.name),
            }
            return Err(error);
        }
        Ok(())
    }

    /// Checks a definition as a whole, and builds its setup if it has one.
    async fn build_setup(
        &self,
        definition: &TemplateDefinition,
        (name, called): (&str, String),
        no_cache: bool,
        progress: ProgressSink,
    ) -> Result<Option<TemplateBuild>> {
        let base = match self.uses_environments(definition.runtime.as_deref()) {
            true => Some(
                self.sandboxes
                    .installed(&definition.owner, &definition.environment, &progress)
                    .await?,
            ),
            false if definition.setup.is_empty() => None,
            false => return Err(no_setup_there()),
        };
        let mut tried = CreateSandbox {
            owner: definition.owner.clone(),
            bounds: definition.bounds.clone(),
            environment: definition.environment.clone(),
            ..CreateSandbox::default()
        };
        fill::sandbox(definition, &mut tried);
        let admitted = self.sandboxes.gate().admit(tried).await?;
        self.check_pool(definition.pool_size, admitted.sandbox.mem_mib)?;
        let Some(base) = base.filter(|_| !definition.setup.is_empty()) else {
            return Ok(None);
        };
        let builder = self.builder(definition, admitted.runtime.as_ref());
        let request = BuildRequest {
            name: Some(called),
            made_for: Some(name.to_string()),
            no_cache,
            runtime: builder,
            ..build_request(definition, &base)
        };
        let environment = self.environments.build(request, progress).await?;
        let digest = environment
            .digest
            .ok_or_else(|| Error::internal("what the setup made has no digest"))?;
        Ok(Some(TemplateBuild {
            environment: environment.name,
            digest,
            size_bytes: environment.size_bytes,
            built_at: Timestamp::now(),
        }))
    }

    /// Whether machines of this runtime, or of the default one, start from environments.
    fn uses_environments(&self, runtime: Option<&str>) -> bool {
        let name = runtime.unwrap_or(&self.sandboxes.config.runtime);
        let found = self.sandboxes.runtimes.named(name);
        found.is_none_or(|runtime| runtime.capabilities().uses_environment)
    }

    /// The runtime of the setup: containers, as in every build, unless the template demands
    /// stronger isolation.
    fn builder(
        &self,
        definition: &TemplateDefinition,
        admitted: &dyn motu_core::Runtime,
    ) -> Option<String> {
        let wanted = match definition.runtime {
            Some(_) => admitted.isolation(),
            None => definition.isolation.unwrap_or(Isolation::None),
        };
        let usual = self.sandboxes.runtimes.named(BUILDER)?.isolation();
        (usual < wanted).then(|| admitted.name().to_string())
    }

    fn check_pool(&self, machines: u64, mem_mib: u64) -> Result<()> {
        let (wanted, most) = (machines * mem_mib, self.sandboxes.config.pool_mem_mib);
        if wanted <= most {
            return Ok(());
        }
        Err(Error::limit(format!(
            "{machines} machines of {mem_mib} MiB are to wait ready; all that wait may have {most} MiB together (pool_mem_mib)"
        ))
        .hint(hint!["a smaller ", field("pool_size"), " or ", field("mem_mib"), ", or a larger ", setting("pool_mem_mib")])
        .details(serde_json::json!({
            "limit": "pool_mem_mib", "value": wanted, "max": most,
        })))
    }

    /// Removes the environment of a former setup, unless a sandbox still uses it.
    async fn forget_built(&self, built: Option<&TemplateBuild>) {
        let Some(built) = built else { return };
        let nobody_takes_one = self.sandboxes.environments_in_use.write().await;
        let in_use = self.sandboxes.digests_in_use();
        let removed = self
            .sandboxes
            .environments
            .remove(&built.environment, &in_use)
            .await;
        drop(nobody_takes_one);
        self.sandboxes.tell_of_removal().await;
        match removed {
            Ok(_) | Err(EnvironmentError::InUse { .. } | EnvironmentError::NotInstalled { .. }) => {
            }
            Err(error) => {
                tracing::warn!(environment = built.environment, %error, "could not remove the environment of a template's previous setup");
            }
        }
    }

    /// A template whose environment is installed, so that machines can be made now.
    async fn ready_template(&self, name: &str, runtime: Option<&str>) -> Result<Template> {
        let mut template = self.sandboxes.templates.get(name)?;
        let runtime = runtime.or(template.definition.runtime.as_deref());
        match (self.uses_environments(runtime), &template.built) {
            (false, None) => return Ok(template),
            (false, Some(_)) => return Err(no_setup_there()),
            (true, _) => {}
        }
        if self.is_there(&template).await {
            return Ok(template);
        }
        // Progress is discarded: the caller only waits for the machine.
        let (progress, _) = tokio::sync::mpsc::channel(1);
        let Some(_) = &template.built else {
            let environment = &template.definition.environment;
            let found = self
                .sandboxes
                .installed(&template.owner, environment, &progress);
            // What was the host's may be the project's now, under a name of its own.
            template.definition.environment = found.await?.name;
            return Ok(template);
        };
        let _turn = self.sandboxes.templates.turn(name).await;
        let template = self.sandboxes.templates.get(name)?;
        if self.is_there(&template).await {
            return Ok(template);
        }
        tracing::info!(
            template = name,
            "the environment of a template's setup is gone: building it again"
        );
        let definition = owned(&template);
        self.prepare(name, definition, Some(template), false, progress)
            .await
    }

    /// Whether the environment of a template is installed with the expected digest.
    async fn is_there(&self, template: &Template) -> bool {
        let found = self.sandboxes.environments.resolve(template.start()).await;
        found.is_ok_and(|found| match &template.built {
            Some(built) => built.digest == found.digest,
            None => true,
        })
    }

    /// Fills a sandbox request from its template.
    pub(crate) async fn fill_sandbox(&self, mut ask: CreateSandbox) -> Result<CreateSandbox> {
        let Some(name) = ask.template.take() else {
            return Ok(ask);
        };
        one_of_both(&ask.environment)?;
        let template = self.ready_template(&name, ask.runtime.as_deref()).await?;
        saving::fits(&template, &ask)?;
        fill::from_template(&template, &mut ask);
        Ok(ask)
    }

    /// Fills a workspace request from its template.
    pub(crate) async fn fill_workspace(&self, mut ask: CreateWorkspace) -> Result<CreateWorkspace> {
        let Some(name) = ask.template.take() else {
            return Ok(ask);
        };
        one_of_both(&ask.environment)?;
        let template = self.ready_template(&name, ask.runtime.as_deref()).await?;
        if template.asleep().is_some() {
            return Err(Error::unsupported(format!(
                "{name} was saved with its memory, and a workspace begins with files alone"
            ))
            .hint("make a sandbox of it, or save one without its memory"));
        }
        fill::workspace(&template.definition, &mut ask);
        ask.environment = template.start().to_string();
        ask.made_from = Some(template.reference());
        Ok(ask)
    }
}

/// The definition of a stored template, owned by the template's owner.
fn owned(template: &Template) -> TemplateDefinition {
    TemplateDefinition {
        owner: template.owner.clone(),
        ..template.definition.clone()
    }
}

/// The name of the environment that a template's setup builds.
fn environment_name(name: &str, digest: &str) -> String {
    let digits: String = digest
        .trim_start_matches("sha256:")
        .chars()
        .take(12)
        .collect();
    own_name(name, |own| format!("template-{own}:{digits}"))
}

/// The name of something of a template's: in the names of the project that the template's name is in.
fn own_name(template: &str, called: impl FnOnce(&str) -> String) -> String {
    match of_name(template).and_then(|project| Project::parse(project).ok()) {
        Some(project) => project.complete(&called(project.short(template))),
        None => called(template),
    }
}

/// The build request of a setup. Its commands run as the user of the base environment.
fn build_request(definition: &TemplateDefinition, base: &Environment) -> BuildRequest {
    let own = definition.setup_policy.clone();
    BuildRequest {
        owner: definition.owner.clone(),
        bounds: definition.bounds.clone(),
        dockerfile_name: Some("setup".to_string()),
        from: Some(definition.environment.clone()),
        run: definition.setup.clone(),
        allowed_hosts: match own {
            Some(_) => Vec::new(),
            None => definition.allowed_hosts.clone(),
        },
        policy: own.or_else(|| definition.network().map(String::from)),
        env: definition.env.clone(),
        default_user: Some(base.default_user.clone()),
        default_workdir: Some(base.default_workdir.clone()),
        size: definition.size,
        ..BuildRequest::default()
    }
}

fn one_of_both(environment: &str) -> Result<()> {
    match environment {
        "" => Ok(()),
        _ => Err(
            Error::invalid("both a template and an environment are named")
                .hint("a template says what its machines start from: leave the environment out"),
        ),
    }
}

fn asleep(what: &str) -> Error {
    Error::unsupported(format!(
        "a template that was saved with its memory cannot {what}"
    ))
    .hint("save a sandbox under another name")
}

fn no_setup_there() -> Error {
    Error::unsupported(
        "machines of this runtime start from nothing of ours, so a setup has no effect there",
    )
    .hint("leave the setup out, or choose another runtime")
}
