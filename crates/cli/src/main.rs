//! The `motu` command.

fn main() -> std::process::ExitCode {
    motu_cli::main()
}
