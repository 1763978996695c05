//! Other people's programs: found or missed by name, run with their output kept.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// An ordinary user that every system has: "nobody".
pub const NOBODY: u32 = 65534;

/// What a program said (standard output and error), and its exit code (128 + signal when killed).
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub text: String,
}

/// Where `tool` is, looking into the system's administration directories as well, which a user's PATH may lack.
#[must_use]
pub fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(extra).map(|dir| dir.join(tool)).find(|file| file.is_file())
}

/// Whether `tool` can be run.
#[must_use]
pub fn have(tool: &str) -> bool {
    find(tool).is_some()
}

/// A command for `tool`, with plain messages.
#[must_use]
pub fn command(tool: impl AsRef<OsStr>) -> Command {
    let tool = tool.as_ref();
    let found = tool.to_str().and_then(find).unwrap_or_else(|| tool.into());
    let mut command = Command::new(found);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// A command for `tool` on an image of nonsense: it ends after `seconds` (124), with 1 GiB of memory at most, and
/// writes no file beyond 64 MiB.
#[must_use]
pub fn bounded(tool: &str, seconds: &str) -> Command {
    let limits = "trap '' XFSZ; ulimit -f 131072; ulimit -v 1048576; exec \"$@\"";
    let mut bounded = command("timeout");
    bounded.args(["-k", "5", seconds, "sh", "-c", limits, "sh"]).arg(find(tool).unwrap_or_else(|| tool.into()));
    bounded
}

/// Runs to the end, whatever the exit code.
pub fn say(command: &mut Command) -> Result<Said> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(Said { code: exit_code(output.status), text })
}

/// Runs to the end; any exit code but 0 is an error that carries the output.
pub fn run(command: &mut Command) -> Result<String> {
    let said = say(command)?;
    if said.code != 0 {
        bail!("{command:?} exited with {}:\n{}", said.code, said.text);
    }
    Ok(said.text)
}

/// `run` with arguments in a row.
pub fn run_tool<S: AsRef<OsStr>>(tool: &str, args: impl IntoIterator<Item = S>) -> Result<String> {
    run(command(tool).args(args))
}

/// The exit code, or 128 + the signal that ended it.
#[must_use]
pub fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Asks again until it is true; false when the time is over.
pub fn wait_until(limit: Duration, done: impl FnMut() -> bool) -> bool {
    wait_pausing(limit, Duration::from_millis(50), done)
}

/// The same, asked again each millisecond, where it is measured how long that took.
pub fn wait_closely(limit: Duration, done: impl FnMut() -> bool) -> bool {
    wait_pausing(limit, Duration::from_millis(1), done)
}

/// Pauses a millisecond at first, and at most so long.
fn wait_pausing(limit: Duration, most: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    while !done() {
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(most);
    }
    true
}

/// CPUs that this process may use.
#[must_use]
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Whether we are root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The `quire` command under test: `$QUIRE`, or the one that was built next to us.
pub fn quire() -> Result<PathBuf> {
    let path = match std::env::var_os("QUIRE") {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe()?.with_file_name("quire"),
    };
    if !path.is_file() {
        bail!("no quire command at {}: build it (make) or set QUIRE", path.display());
    }
    Ok(path)
}

/// A path as text for messages and arguments; ours are always UTF-8.
#[must_use]
pub fn text(path: &Path) -> &str {
    path.to_str().expect("our own paths are UTF-8")
}
