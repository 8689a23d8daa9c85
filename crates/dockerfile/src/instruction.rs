//! The instructions of a Dockerfile.
//!
//! Words are unexpanded, with quotes and variables: they are expanded when the step is built.

/// One stage: from one `FROM` to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    pub line: usize,
    /// The argument of `FROM`, without `AS`.
    pub from: String,
    pub platform: Option<String>,
    /// In lower case.
    pub name: Option<String>,
    pub steps: Vec<Step>,
}

/// One instruction and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub line: usize,
    /// The source of the instruction, on one line.
    pub text: String,
    pub instruction: Instruction,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instruction {
    Arg(Vec<(String, Option<String>)>),
    Env(Vec<(String, String)>),
    Label(Vec<(String, String)>),
    Run(Run),
    /// `COPY` and `ADD`.
    Copy(Copy),
    Workdir(String),
    User(String),
    Entrypoint(Command),
    Cmd(Command),
    Shell(Vec<String>),
    Expose(Vec<String>),
    StopSignal(String),
    Volume(Vec<String>),
    /// In the format of image configurations.
    Healthcheck(serde_json::Value),
    /// The unparsed instruction for builds that start from this image.
    Onbuild(String),
    Maintainer(String),
}

/// A command in shell or exec form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Run by the shell.
    Shell(String),
    /// Executed directly.
    Exec(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub command: Command,
    pub mounts: Vec<Mount>,
    pub network: StepNetwork,
    pub heredocs: Vec<Heredoc>,
}

/// The network of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepNetwork {
    /// The network of the build's policy.
    Policy,
    None,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mount {
    Secret(SecretMount),
    Cache(CacheMount),
}

/// A directory whose content persists between builds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheMount {
    /// The target path if not given.
    pub id: String,
    pub target: String,
    pub sharing: Sharing,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// How two steps use one cache at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    Shared,
    Locked,
    Private,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretMount {
    pub id: String,
    /// The path of the secret's file; `/run/secrets/ID` by default, `None` if it is only a
    /// variable.
    pub target: Option<String>,
    /// The environment variable with the secret.
    pub env: Option<String>,
    pub required: bool,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// The instruction was `ADD`: archives are unpacked.
    pub add: bool,
    /// A stage, by name or number, or an environment; `None` means the context.
    pub from: Option<String>,
    pub chown: Option<String>,
    pub chmod: Option<String>,
    pub sources: Vec<String>,
    pub destination: String,
    /// Sources that are here-documents.
    pub heredocs: Vec<Heredoc>,
}

/// A here-document of an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heredoc {
    pub name: String,
    pub body: String,
    /// Whether variables in it are expanded: its name was not quoted.
    pub expand: bool,
}
