//! What a Dockerfile can say.
//!
//! Words are as they were written, quotes and variables included: they are
//! expanded when the step is built.

/// One stage: from one `FROM` to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    pub line: usize,
    /// What follows `FROM`, without `AS`.
    pub from: String,
    pub platform: Option<String>,
    /// Lower case.
    pub name: Option<String>,
    pub steps: Vec<Step>,
}

/// One instruction and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub line: usize,
    /// The instruction as it was written, on one line.
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
    /// In the form images keep it in.
    Healthcheck(serde_json::Value),
    /// The instruction for builds that start from this image, as it was written.
    Onbuild(String),
    Maintainer(String),
}

/// What is run, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// By the shell.
    Shell(String),
    /// As it is.
    Exec(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub command: Command,
    pub mounts: Vec<Mount>,
    pub network: StepNetwork,
    pub heredocs: Vec<Heredoc>,
}

/// What one step may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepNetwork {
    /// What the build's policy allows.
    Policy,
    None,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mount {
    Secret(SecretMount),
    Cache(CacheMount),
}

/// A directory whose contents stay from build to build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheMount {
    /// The target when it is not said.
    pub id: String,
    pub target: String,
    pub sharing: Sharing,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// What happens when two steps want one cache at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    Shared,
    Locked,
    Private,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretMount {
    pub id: String,
    /// Where it is a file; `/run/secrets/ID` unless it is only a variable.
    pub target: Option<String>,
    /// The variable that holds it.
    pub env: Option<String>,
    pub required: bool,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// It was `ADD`: archives are unpacked.
    pub add: bool,
    /// A stage, by name or number, or an environment; the context when missing.
    pub from: Option<String>,
    pub chown: Option<String>,
    pub chmod: Option<String>,
    pub sources: Vec<String>,
    pub destination: String,
    /// Sources that are written in the Dockerfile itself.
    pub heredocs: Vec<Heredoc>,
}

/// Lines that follow an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heredoc {
    pub name: String,
    pub body: String,
    /// Variables in it count: its name was not quoted.
    pub expand: bool,
}
