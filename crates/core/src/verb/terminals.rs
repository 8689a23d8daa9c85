//! The list, continued: terminals and shells.

use super::verbs;
use crate::exec::{ExecSession, TtySize};
use crate::files::ByteStream;
use crate::lists::{ShellList, TerminalList};
use crate::page::Page;
use crate::terminal::{
    ConfigureTerminal, ExpectInTerminal as Expect, OpenTerminal as Open, PollTerminal as Poll,
    ReadScreen, ReadScrollback, ReadTranscript, RunInTerminal as RunLine,
    SendToTerminal as SendInput, SignalTerminal as Signal, TakeSeat, Terminal, TerminalAnswer,
    TerminalId, TerminalOpened, TerminalPassword, TerminalScreen as Screen,
    TerminalScrollback as Scrollback, TerminalTranscript as Transcript, Wait,
};
use crate::workspace::{
    AttachShell as ShellSize, OpenShell as NewShell, ReadShell as ShellCursor, Shell, ShellOutput,
    SignalShell as ShellSignal, WorkspaceId, WriteShell as Keystrokes,
};

verbs! {
    /// The verbs of terminals. A session that was terminated answers with status `terminated`;
    /// an unknown one is `not_found`. A shell of a workspace is a session too.
    trait Terminals, by terminals, visit visit_terminals, table TERMINAL_VERBS;

    /// Open a session, or find it
    ///
    /// `created` says which; one that is found is given the description, the size and the
    /// prompt that are asked for. `host` is for callers of the local socket only.
    value open_terminal = OpenTerminal(; Open) -> TerminalOpened,
        POST "/v1/terminals" 201 or 200 unless created, Runs, "terminals";
    /// Every session: the living ones first, the most recently active first among them
    value list_terminals = ListTerminals(; Page) -> TerminalList,
        GET "/v1/terminals" 200, Reads, "terminals";
    /// One session, and what it waits for
    value get_terminal = GetTerminal(terminal: TerminalId) -> Terminal,
        GET "/v1/terminals/{terminal}" 200, Reads, "terminals";
    /// Change the description, the prompt, the silence or the size of a session
    value configure_terminal = Configure(terminal: TerminalId; ConfigureTerminal) -> Terminal,
        PATCH "/v1/terminals/{terminal}" 200, Settles, "terminals";
    /// End a session and everything on its terminal, for good
    value terminate_terminal = TerminateTerminal(terminal: TerminalId) -> Terminal,
        DELETE "/v1/terminals/{terminal}" 200, Destroys, "terminals";

    /// Run a command line, and wait until it has ended or wants something
    value run_in_terminal = RunInTerminal(terminal: TerminalId; RunLine) -> TerminalAnswer,
        POST "/v1/terminals/{terminal}/run" 200, Runs, "terminals";
    /// Type text, paste it, or press keys
    value send_to_terminal = SendToTerminal(terminal: TerminalId; SendInput) -> TerminalAnswer,
        POST "/v1/terminals/{terminal}/input" 200, Runs, "terminals";
    /// Type a secret where the program does not show it
    value send_terminal_password = SendPassword(terminal: TerminalId; TerminalPassword) -> TerminalAnswer,
        POST "/v1/terminals/{terminal}/password" 200, Runs, "terminals";
    /// Send a signal to what runs in the foreground
    value signal_terminal = SignalTerminal(terminal: TerminalId; Signal) -> TerminalAnswer,
        POST "/v1/terminals/{terminal}/signal" 200, Runs, "terminals";
    /// Wait for output without typing anything
    value poll_terminal = PollTerminal(terminal: TerminalId; Poll) -> TerminalAnswer,
        POST "/v1/terminals/{terminal}/poll" 200, Reads, "terminals";
    /// Wait until one of several patterns is printed
    value expect_in_terminal = ExpectInTerminal(terminal: TerminalId; Expect) -> TerminalAnswer,
        POST "/v1/terminals/{terminal}/expect" 200, Reads, "terminals";
    /// Wait until a shell waits for a command
    value expect_terminal_prompt = ExpectPrompt(terminal: TerminalId; Wait) -> TerminalAnswer,
        POST "/v1/terminals/{terminal}/expect-prompt" 200, Reads, "terminals";

    /// The screen as it is now
    value terminal_screen = TerminalScreen(terminal: TerminalId; ReadScreen) -> Screen,
        GET "/v1/terminals/{terminal}/screen" 200, Reads, "terminals";
    /// The screen and what is above it
    value terminal_scrollback = TerminalScrollback(terminal: TerminalId; ReadScrollback) -> Scrollback,
        GET "/v1/terminals/{terminal}/scrollback" 200, Reads, "terminals";
    /// Forget what is above the screen, without typing anything
    value clear_terminal_scrollback = ClearScrollback(terminal: TerminalId) -> Terminal,
        DELETE "/v1/terminals/{terminal}/scrollback" 200, Destroys, "terminals";
    /// What was printed, from a place on, and where it is kept
    value terminal_transcript = TerminalTranscript(terminal: TerminalId; ReadTranscript) -> Transcript,
        GET "/v1/terminals/{terminal}/transcript" 200, Reads, "terminals";
    /// The recording so far, in asciicast v3
    bytes terminal_recording = TerminalRecording(terminal: TerminalId) -> ByteStream,
        GET "/v1/terminals/{terminal}/recording" 200, Reads, "terminals", "application/x-asciicast";
    /// A session, live
    ///
    /// Both bodies are live streams of frames; the screen as it is now comes first. Leaving
    /// does not end the session. Without a size the caller watches, and may not type.
    attach attach_terminal = AttachTerminal(terminal: TerminalId; TakeSeat) -> ExecSession,
        POST "/v1/terminals/{terminal}/stream" 200, Runs, "terminals";

    /// Open a shell on a terminal of its own
    value open_shell = OpenShell(id: WorkspaceId; NewShell) -> Shell,
        POST "/v1/workspaces/{id}/shells" 201, Runs, "shells";
    /// The shells of a workspace
    value list_shells = ListShells(id: WorkspaceId) -> ShellList,
        GET "/v1/workspaces/{id}/shells" 200, Reads, "shells";
    /// Read what a shell has said, from a cursor on
    value read_shell = ReadShell(id: WorkspaceId, shell: str; ShellCursor) -> ShellOutput,
        GET "/v1/workspaces/{id}/shells/{shell}/output" 200, Reads, "shells";
    /// Type into a shell
    value write_shell = WriteShell(id: WorkspaceId, shell: str; Keystrokes) -> Shell,
        POST "/v1/workspaces/{id}/shells/{shell}/input" 200, Runs, "shells";
    /// Send a signal to what runs in the foreground of a shell
    value signal_shell = SignalShell(id: WorkspaceId, shell: str; ShellSignal) -> Shell,
        POST "/v1/workspaces/{id}/shells/{shell}/signal" 200, Runs, "shells";
    /// Give a shell's terminal another size
    value resize_shell = ResizeShell(id: WorkspaceId, shell: str; TtySize) -> Shell,
        POST "/v1/workspaces/{id}/shells/{shell}/resize" 200, Settles, "shells";
    /// A shell, live
    ///
    /// Both bodies are live streams of frames; the screen as it is now comes first. Leaving
    /// does not end the shell.
    attach attach_shell = AttachShell(id: WorkspaceId, shell: str; ShellSize) -> ExecSession,
        POST "/v1/workspaces/{id}/shells/{shell}/stream" 200, Runs, "shells";
    /// End a shell and what runs in it
    value close_shell = CloseShell(id: WorkspaceId, shell: str) -> Shell,
        DELETE "/v1/workspaces/{id}/shells/{shell}" 200, Destroys, "shells";
}
